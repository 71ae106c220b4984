package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// readsPerPass is how many bytes of Reads one pass copies, so that other queue pairs have their turn.
const readsPerPass = 4 << 20

// work notes that the next passes have work.
func (q *qp) work() {
	if q.busy {
		return
	}
	q.busy = true
	if q.scq.interest.notified {
		q.scq.activate(q)
	}
	if q.rcq != q.scq && q.rcq.interest.notified {
		q.rcq.activate(q)
	}
}

// transmit carries out the next requests and answers, as far as possible now. Reads and Atomics that need no
// answer of the peer are carried out only in passes. It reports whether it has done anything.
func (q *qp) transmit(pass bool) (did bool) {
	q.out.waits = false
	budget := 0
	if pass {
		budget = readsPerPass
	}
	for q.connected() {
		head, next, tail := q.SQ.Head, q.next, q.out.tail
		q.answer.responseFrames()
		if q.connected() {
			q.requests(&budget)
		}
		if !q.connected() {
			return true
		}
		if q.retire(); !q.connected() {
			return true // the completion queue has overrun
		}
		if q.out.tail != tail {
			q.out.publish()
			q.tell()
		}
		if q.out.tail == tail && q.SQ.Head == head && q.next == next {
			break
		}
		did = true
	}
	if q.connected() && q.CloseDue() && q.SQ.Len() == 0 && !q.answer.owes() {
		if q.out.room(0) {
			q.out.begin(header{op: frameClose, flags: flagLast})
			q.out.publish()
			q.tell()
			q.CloseSent()
			did = true
		} else {
			q.out.waits = true
		}
	}
	if q.connected() {
		q.settleWork()
	}
	return did || budget < readsPerPass && pass
}

// settleWork updates busy, and whether this end waits for the peer.
func (q *qp) settleWork() {
	wants := uint64(0)
	if q.out.waits {
		wants = 1
	}
	if q.out.wants != wants {
		// with a barrier: consumed is read after it
		atomic.StoreUint64(&q.out.wants, wants)
		if q.out.waits && q.out.consumed != q.out.tail {
			before := q.out.consumed
			if q.out.loadConsumed(); q.out.consumed != before {
				q.scq.wakeSleepers()
			}
		}
	}
	q.busy = q.SQ.Head != q.SQ.Tail || q.answer.owes() || q.CloseDue()
}

// requests carries out the send queue, in order.
func (q *qp) requests(budget *int) {
	for q.next != q.SQ.Tail {
		w := q.SQ.At(q.next)
		if w.Flags&transport.FlagFence != 0 && w.Sent == 0 && q.reads.read != q.reads.began {
			return // earlier Reads first
		}
		ok := false
		switch w.Op {
		case transport.OpWrite, transport.OpWriteImm:
			ok = q.write(w)
		case transport.OpSend, transport.OpSendInvalidate:
			ok = q.send(w)
		case transport.OpRead, transport.OpFetchAdd, transport.OpCompareSwap:
			ok = q.reads.ask(w, budget)
		case transport.OpBind, transport.OpInvalidate:
			ok = q.bind(w)
		}
		if !ok {
			return
		}
		q.next++
	}
}

// bind carries out a Bind or an Invalidate. If its window or region is gone, the QP ends.
func (q *qp) bind(w *verbs.Request) bool {
	if err := q.PD.CarryOut(&q.Windows, w); err != nil {
		w.Failed = transport.StatusLocalProt
		q.Fail(err, transport.StatusFlushed)
		return false
	}
	w.Done = true
	return true
}

// refuse ends the QP because of a request that the peer's table does not allow.
func (q *qp) refuse(w *verbs.Request, err error) {
	w.Failed = transport.StatusRemoteAccess
	what := "Write"
	switch w.Op {
	case transport.OpRead:
		what = "Read"
	case transport.OpFetchAdd, transport.OpCompareSwap:
		what = "Atomic"
	}
	q.Fail(&violation.Error{Reason: violation.Own, Err: fmt.Errorf("%s: %w", what, err)},
		transport.StatusFlushed)
}

// gone ends the QP because a region of a request was deregistered.
func (q *qp) gone(w *verbs.Request) bool {
	w.Failed = transport.StatusLocalProt
	q.Fail(fmt.Errorf("%w: a region of a posted request was deregistered before it was sent",
		transport.ErrInvalid),
		transport.StatusFlushed)
	return false
}

// beginPlacing announces that this end will look up a key and place bytes with it; false if the peer no
// longer accepts any.
func (w *fastWrite) beginPlacing() bool {
	w.placementMark++
	if w.fenced {
		atomic.StoreUint64(w.placementSeq, w.placementMark)
	} else {
		sys.StoreRelease(w.placementSeq, w.placementMark)
	}
	return atomic.LoadUint64(w.notifyEnable)&notifyClosed == 0
}

// endPlacing announces that they are placed.
func (w *fastWrite) endPlacing() {
	w.placementMark++
	if w.fenced {
		atomic.StoreUint64(w.placementSeq, w.placementMark)
	} else {
		sys.StoreRelease(w.placementSeq, w.placementMark)
	}
}

// write carries out a Write; false if it is not complete.
func (q *qp) write(w *verbs.Request) bool {
	if w.Sent < w.Total {
		if !w.Alive() {
			return q.gone(w)
		}
		s := w.Remote[0]
		if !q.beginPlacing() {
			q.endPlacing()
			return false // the connection is about to end
		}
		t, err := q.peer.find(s.Key, transport.RemoteWrite, s.Offset, s.Length)
		switch {
		case err != nil || !t.shared:
		case !t.enter(s.Key, false):
			err = verbs.ErrKey(s.Key)
		default:
			q.placeAll(q.peer.mem[t.where+s.Offset:][:s.Length:s.Length], w)
			t.leave()
			w.Sent = w.Total
			if !q.fenced && q.key != s.Key && !t.counted {
				q.before = q.writeTarget
				q.writeTo(s.Key, &t)
			}
		}
		q.endPlacing()
		if err != nil {
			q.refuse(w, err)
			return false
		}
		if t.shared {
			q.tellPlaced()
		}
	}
	for w.Sent < w.Total {
		n, ok := q.out.piece(w.Total - w.Sent)
		if !ok {
			return false
		}
		if rest := w.Total - w.Sent - n; rest > 0 && rest < wordSize {
			n -= wordSize // the last bytes of a Write stay in one frame
		}
		h := header{length: n, op: frameWrite, a: uint64(w.Remote[0].Key), b: w.Remote[0].Offset +
			uint64(w.Sent)}
		if w.Sent+n == w.Total {
			h.flags = flagLast
		}
		q.frame(h, w)
	}
	if w.Op == transport.OpWriteImm {
		if q.out.full(0) {
			return false
		}
		q.out.begin(header{op: frameImmediate, flags: flagLast | solicited(w), a: w.Number, b: w.Imm})
	}
	w.Done = true
	return true
}

// placeAll copies a whole Write to the peer's memory.
func (q *qp) placeAll(dst []byte, w *verbs.Request) {
	if w.Flags&transport.FlagInline != 0 {
		place.Bytes(dst, w.Inline)
		return
	}
	if len(w.Local) == 1 {
		p := &w.Local[0]
		place.Bytes(dst, p.Region.Mem[p.Off:p.Off+p.Len])
		return
	}
	var last [wordSize]byte
	n := max(w.Total-wordSize, 0)
	gather(dst[:n], w, 0)
	gather(last[:w.Total-n], w, n)
	place.Bytes(dst[n:], last[:w.Total-n])
}

// gather copies bytes of a request's elements, from an offset on.
func gather(dst []byte, w *verbs.Request, off int) {
	for len(dst) > 0 {
		p, at, k := verbs.Span(w.Local, off, len(dst))
		copy(dst, p.Region.Mem[at:at+k])
		dst, off = dst[k:], off+k
	}
}

// frame writes a frame with the next bytes of a request into the ring.
func (q *qp) frame(h header, w *verbs.Request) {
	first, second := q.out.beginFrame(h)
	for _, b := range [2][]byte{first, second} {
		if w.Flags&transport.FlagInline != 0 {
			copy(b, w.Inline[w.Sent:])
		} else {
			gather(b, w, w.Sent)
		}
		w.Sent += len(b)
	}
	q.out.endFrame(h.length)
}

// send carries out a Send.
func (q *qp) send(w *verbs.Request) bool {
	for w.Sent < w.Total || w.Total == 0 && w.Op == transport.OpSend {
		if !w.Alive() {
			return q.gone(w)
		}
		n, ok := q.out.piece(w.Total - w.Sent)
		if !ok {
			return false
		}
		h := header{length: n, op: frameSend, a: w.Number, b: uint64(w.Sent)}
		if w.Sent+n == w.Total && w.Op == transport.OpSend {
			h.flags = flagLast | solicited(w)
		}
		q.frame(h, w)
		if w.Total == 0 {
			break
		}
	}
	if w.Op == transport.OpSendInvalidate {
		if q.out.full(0) {
			return false
		}
		q.out.begin(header{op: frameInvalidate, flags: flagLast | solicited(w), a: w.Number, b: w.Other})
	}
	w.Done = true
	return true
}

// solicited returns the flag of a frame whose Recv raises a solicited event.
func solicited(w *verbs.Request) uint8 {
	if w.Solicited() {
		return flagSolicited
	}
	return 0
}

// tellWrote notifies the peer of a Write.
func (q *qp) tellWrote() {
	sys.StoreRelease(&q.out.writeSeq, q.out.writeSeq+1)
	q.tell()
}

// tellPlaced is tellWrote if the peer wants notifications.
func (q *qp) tellPlaced() {
	if atomic.LoadUint64(q.notifyEnable) != 0 {
		q.tellWrote()
	}
}

// tell rings the peer's doorbells for this connection, if the peer wants notifications.
func (q *qp) tell() {
	if q.fenced {
		sys.FullBarrier() // either the peer sees what was published, or this end sees notifyEnable
	}
	if atomic.LoadUint64(q.notifyEnable) == 0 {
		return
	}
	for i := range q.peer.queues {
		q.peer.queues[i].ringDoorbell(q.rcq.Poller())
	}
}
