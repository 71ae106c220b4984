package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// gatherFrames is how many requests FlagMore holds back before they go out all the same.
const gatherFrames = 64

// PostSend checks a request and carries it out, or queues it.
//
// A Write of one element into memory that the last Write went to as well is carried out here, without a look at anything but that element, the
// key in the peer's table, and the peer's wish to be told.
func (q *qp) PostSend(wr *transport.SendWR) error {
	if !q.open || wr == nil || wr.Op != transport.OpWrite || len(wr.Local) != 1 || len(wr.Remote) != 1 || wr.Flags&^transport.FlagMore != 0 {
		return q.post(wr)
	}
	s, t := &wr.Local[0], &wr.Remote[0]
	r, ok := s.MR.(*region)
	if !ok || r == nil || r.pd.Load() != q.pd || t.Key != q.key || t.Key == 0 {
		return q.post(wr)
	}
	n := s.Length
	if n <= 0 || uint64(n) != t.Length || t.Offset > q.length || t.Length > q.length-t.Offset || uint(s.Offset) > uint(len(r.mem)) ||
		n > len(r.mem)-s.Offset {
		return q.post(wr)
	}
	sys.StoreRelease(q.placing, q.mark+1)
	stands := atomic.LoadUint64(q.attention)&attentionClosed == 0 && atomic.LoadUint64(q.entry) == uint64(q.key)
	if stands {
		placeAt(unsafe.Add(q.base, t.Offset), unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.mem)), s.Offset), n)
	}
	q.mark += 2
	sys.StoreRelease(q.placing, q.mark)
	if !stands {
		return q.post(wr)
	}
	if atomic.LoadUint64(q.attention) != 0 {
		q.tellWrote()
	}
	return nil
}

// post is PostSend for all requests.
func (q *qp) post(wr *transport.SendWR) error {
	if q.state != transport.StateReady && q.state != transport.StateDraining {
		return fmt.Errorf("%w: it is %v (rank %d at %s)", transport.ErrState, q.state, q.peer, q.remote)
	}
	total, err := q.check(wr)
	if err != nil {
		return err
	}
	if !q.sq.room(q.conf.SendWR) {
		return transport.ErrQueueFull
	}
	w := q.sq.at(q.sq.tail)
	w.id, w.op, w.flags, w.total, w.imm = wr.ID, wr.Op, wr.Flags, total, wr.Imm
	w.done, w.asked, w.failed, w.sent, w.got = false, false, 0, 0, 0
	w.local, w.inline, w.remote = w.local[:0], w.inline[:0], append(w.remote[:0], wr.Remote...)
	if wr.Flags&transport.FlagInline != 0 {
		for _, s := range wr.Local {
			w.inline = append(w.inline, s.MR.(*region).mem[s.Offset:][:s.Length]...)
		}
	} else {
		for i := range wr.Local {
			if s := &wr.Local[i]; s.Length > 0 {
				r := s.MR.(*region)
				w.local = append(w.local, piece{r, r.Key(), s.Offset, s.Length})
			}
		}
	}
	switch wr.Op {
	case transport.OpSend, transport.OpWriteImm:
		w.number = q.nextMsn
		q.nextMsn++
	case transport.OpRead:
		w.number = q.readNo
		q.readNo++
	case transport.OpFetchAdd, transport.OpCompareSwap:
		w.number, w.imm, w.other = q.readNo, wr.Operand, wr.Compare
		q.readNo++
	case transport.OpBind:
		q.postBind(w, wr.Bind)
	case transport.OpInvalidate:
		w.other = uint64(wr.Key)
	case transport.OpSendInvalidate:
		w.number, w.other = q.nextMsn, uint64(wr.Key)
		q.nextMsn++
	}
	q.sq.tail++
	q.open = false
	q.work()
	if wr.Flags&transport.FlagMore == 0 || q.sq.tail-q.next >= gatherFrames {
		q.transmit(false)
	}
	if q.sq.head != q.sq.tail && !q.waits {
		q.scq.disturb() // a pass has something to do
	}
	return nil
}

// check refuses a request that cannot be right, and returns its length.
func (q *qp) check(wr *transport.SendWR) (int, error) {
	if wr == nil {
		return 0, fmt.Errorf("%w: none", transport.ErrInvalid)
	}
	need := transport.Access(0)
	untagged := false
	switch wr.Op {
	case transport.OpWrite, transport.OpWriteImm:
	case transport.OpSend, transport.OpSendInvalidate:
		untagged = true
	case transport.OpRead:
		need = transport.LocalWrite
		if q.most == 0 {
			return 0, fmt.Errorf("%w: a Read on a queue pair that may have none outstanding", transport.ErrInvalid)
		}
	case transport.OpFetchAdd, transport.OpCompareSwap:
		return wordSize, q.checkAtomic(wr)
	case transport.OpBind, transport.OpInvalidate:
		return 0, q.checkHere(wr)
	default:
		return 0, fmt.Errorf("%w: operation %d", transport.ErrInvalid, wr.Op)
	}
	if len(wr.Local) > maxSGE || len(wr.Remote) > maxSegments {
		return 0, fmt.Errorf("%w: %d elements and %d segments; at most %d and %d are possible", transport.ErrInvalid, len(wr.Local),
			len(wr.Remote), maxSGE, maxSegments)
	}
	total := 0
	for i := range wr.Local {
		if _, err := q.pd.local(wr.Local[i], need); err != nil {
			return 0, err
		}
		total += wr.Local[i].Length
	}
	var remote uint64
	for i := range wr.Remote {
		s := &wr.Remote[i]
		if s.Length > maxMessage {
			return 0, fmt.Errorf("%w: a segment of %d bytes", transport.ErrInvalid, s.Length)
		}
		remote += s.Length
	}
	switch {
	case total > maxMessage:
		return 0, fmt.Errorf("%w: %d bytes", transport.ErrInvalid, total)
	case untagged && len(wr.Remote) > 0:
		return 0, fmt.Errorf("%w: a Send names remote memory", transport.ErrInvalid)
	case !untagged && remote != uint64(total):
		return 0, fmt.Errorf("%w: %d local bytes, %d remote", transport.ErrInvalid, total, remote)
	case wr.Op != transport.OpRead && len(wr.Remote) > 1:
		return 0, fmt.Errorf("%w: a Write to %d segments", transport.ErrInvalid, len(wr.Remote))
	case wr.Flags&transport.FlagInline != 0 && (wr.Op == transport.OpRead || total > maxInline):
		return 0, fmt.Errorf("%w: %d bytes inline; at most %d, and not for a Read", transport.ErrInvalid, total, maxInline)
	}
	return total, nil
}

// Flush sends what FlagMore held back.
func (q *qp) Flush() {
	if q.connected() && q.busy {
		q.transmit(false)
	}
}

// retire completes requests from the head of the queue, in order, as far as they are done.
func (q *qp) retire() {
	for q.sq.head != q.sq.tail {
		w := q.sq.at(q.sq.head)
		if !w.done {
			return
		}
		q.sq.head++ // first: if the queue is overrun, complete flushes the rest
		q.complete(w)
	}
	q.open = q.state == transport.StateReady || q.state == transport.StateDraining
}

// complete reports a request that has succeeded, if it asked for that.
func (q *qp) complete(w *wqe) {
	if w.flags&transport.FlagSignaled != 0 {
		q.scq.push(transport.WC{ID: w.id, QP: q.num, Op: w.op, Bytes: w.got})
		if w.flags&transport.FlagNotify != 0 {
			q.scq.raise()
		}
	}
}
