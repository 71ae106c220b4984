package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// readsAPass is how many bytes of Reads one pass copies: the others have their turn.
const readsAPass = 4 << 20

// work notes that there is something to do in the next passes.
func (q *qp) work() {
	if q.busy {
		return
	}
	q.busy = true
	if q.scq.arming.told {
		q.scq.active = append(q.scq.active, q)
	}
	if q.rcq != q.scq && q.rcq.arming.told {
		q.rcq.active = append(q.rcq.active, q)
	}
}

// transmit carries out what is next, as far as it can be now. Reads and Atomics that were posted and need no answer are carried out in passes
// alone. It tells whether it has done something.
func (q *qp) transmit(pass bool) (did bool) {
	q.waits = false
	budget := 0
	if pass {
		budget = readsAPass
	}
	for q.connected() {
		head, next, tail := q.sq.head, q.next, q.out.tail
		q.answerFrames()
		if q.connected() {
			q.requests(&budget)
		}
		if !q.connected() {
			return true
		}
		if q.retire(); !q.connected() {
			return true // the completion queue is overrun
		}
		if q.out.tail != tail {
			q.out.publish()
			q.tell()
		}
		if q.out.tail == tail && q.sq.head == head && q.next == next {
			break
		}
		did = true
	}
	if q.connected() && q.closing == closeDue && q.sq.len() == 0 && q.answers.head == q.answers.tail {
		if q.out.room(0) {
			q.out.begin(header{op: frameClose, flags: flagLast})
			q.out.publish()
			q.tell()
			q.closing = closeSent
			q.maybeClosed()
			did = true
		} else {
			q.waits = true
		}
	}
	if q.connected() {
		q.settleWork()
	}
	return did || budget < readsAPass && pass
}

// settleWork notes whether there is still something to do, and whether it is the peer who has to do something first.
func (q *qp) settleWork() {
	wants := uint64(0)
	if q.waits {
		wants = 1
	}
	if q.out.wants != wants {
		atomic.StoreUint64(&q.out.wants, wants) // with a barrier: what the peer has carried out is looked at behind it
		if q.waits && q.out.consumed != q.out.tail {
			before := q.out.consumed
			if q.out.look(); q.out.consumed != before {
				q.scq.disturb()
			}
		}
	}
	q.busy = q.sq.head != q.sq.tail || q.answers.head != q.answers.tail || q.closing == closeDue
}

// full tells whether there is no room for a frame of n bytes of payload; then the peer tells when there is.
func (q *qp) full(n int) bool {
	if q.out.room(n) {
		return false
	}
	q.waits = true
	return true
}

// requests carries out the send queue, in its order.
func (q *qp) requests(budget *int) {
	for q.next != q.sq.tail {
		w := q.sq.at(q.next)
		if w.flags&transport.FlagFence != 0 && w.sent == 0 && q.read != q.began {
			return // earlier Reads first
		}
		ok := false
		switch w.op {
		case transport.OpWrite, transport.OpWriteImm:
			ok = q.write(w)
		case transport.OpSend, transport.OpSendInvalidate:
			ok = q.send(w)
		case transport.OpRead, transport.OpFetchAdd, transport.OpCompareSwap:
			ok = q.ask(w, budget)
		case transport.OpBind, transport.OpInvalidate:
			ok = q.carryOut(w)
		}
		if !ok {
			return
		}
		q.next++
	}
}

// refuse ends the QP over a request that the peer's table does not allow.
func (q *qp) refuse(w *wqe, err error) {
	w.failed = transport.StatusRemoteAccess
	q.fail(&refused{w.op, err}, transport.StatusFlushed)
}

// refused is a request of ours that asks for what it may not have.
type refused struct {
	op  transport.Opcode
	err error
}

func (r *refused) Error() string {
	what := "Write"
	switch r.op {
	case transport.OpRead:
		what = "Read"
	case transport.OpFetchAdd, transport.OpCompareSwap:
		what = "Atomic"
	}
	return fmt.Sprintf("%s: %v", what, r.err)
}
func (r *refused) Unwrap() error { return r.err }

// gone ends the QP over a request of which a region was deregistered.
func (q *qp) gone(w *wqe) bool {
	w.failed = transport.StatusLocalProt
	q.fail(fmt.Errorf("%w: a region of a posted request was deregistered before it was sent", transport.ErrInvalid),
		transport.StatusFlushed)
	return false
}

// beginPlacing marks that bytes are about to be placed by a key that is looked up behind it; false if the peer takes none any more.
func (q *qp) beginPlacing() bool {
	q.mark++
	if q.fenced {
		atomic.StoreUint64(q.placing, q.mark)
	} else {
		sys.StoreRelease(q.placing, q.mark)
	}
	return atomic.LoadUint64(q.attention)&attentionClosed == 0
}

// endPlacing marks that they are placed.
func (q *qp) endPlacing() {
	q.mark++
	if q.fenced {
		atomic.StoreUint64(q.placing, q.mark)
	} else {
		sys.StoreRelease(q.placing, q.mark)
	}
}

// write carries out a Write; false if it could not be done to its end.
func (q *qp) write(w *wqe) bool {
	if w.sent < w.total {
		if !w.alive() {
			return q.gone(w)
		}
		s := w.remote[0]
		if !q.beginPlacing() {
			q.endPlacing()
			return false // the end of the connection is on its way
		}
		t, err := q.find(s.Key, transport.RemoteWrite, s.Offset, s.Length)
		if err == nil && t.shared {
			q.placeAll(q.far.mem[t.where+s.Offset:][:s.Length:s.Length], w)
			w.sent = w.total
			if !q.fenced && q.key != s.Key {
				q.key, q.entry = s.Key, &t.entry.key
				q.base, q.length = unsafe.Pointer(&q.far.mem[t.where]), t.length
				if t.length <= filledMost {
					touch(q.far.mem[t.where:][:t.length])
				}
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
	for w.sent < w.total {
		n, ok := q.piece(w.total - w.sent)
		if !ok {
			return false
		}
		if rest := w.total - w.sent - n; rest > 0 && rest < wordSize {
			n -= wordSize // the last bytes of a Write stay in one frame
		}
		h := header{length: n, op: frameWrite, a: uint64(w.remote[0].Key), b: w.remote[0].Offset + uint64(w.sent)}
		if w.sent+n == w.total {
			h.flags = flagLast
		}
		q.frame(h, w)
	}
	if w.op == transport.OpWriteImm {
		if q.full(0) {
			return false
		}
		q.out.begin(header{op: frameImmediate, flags: flagLast | w.solicited(), a: w.number, b: w.imm})
	}
	w.done = true
	return true
}

// placeAll copies a whole Write to the peer's memory.
func (q *qp) placeAll(dst []byte, w *wqe) {
	if w.flags&transport.FlagInline != 0 {
		place(dst, w.inline)
		return
	}
	if len(w.local) == 1 {
		p := &w.local[0]
		place(dst, p.r.mem[p.off:p.off+p.n])
		return
	}
	var last [wordSize]byte
	n := max(w.total-wordSize, 0)
	gather(dst[:n], w, 0)
	gather(last[:w.total-n], w, n)
	place(dst[n:], last[:w.total-n])
}

// gather copies bytes of a request's elements, from an offset on.
func gather(dst []byte, w *wqe, off int) {
	for len(dst) > 0 {
		p, at, k := stretch(w.local, off, len(dst))
		copy(dst, p.r.mem[at:at+k])
		dst, off = dst[k:], off+k
	}
}

// frame puts a frame with the next bytes of a request into the ring.
func (q *qp) frame(h header, w *wqe) {
	first, second := q.beginFrame(h)
	for _, b := range [2][]byte{first, second} {
		if w.flags&transport.FlagInline != 0 {
			copy(b, w.inline[w.sent:])
		} else {
			gather(b, w, w.sent)
		}
		w.sent += len(b)
	}
	q.endFrame(h.length)
}

// send carries out a Send.
func (q *qp) send(w *wqe) bool {
	for w.sent < w.total || w.total == 0 && w.op == transport.OpSend {
		if !w.alive() {
			return q.gone(w)
		}
		n, ok := q.piece(w.total - w.sent)
		if !ok {
			return false
		}
		h := header{length: n, op: frameSend, a: w.number, b: uint64(w.sent)}
		if w.sent+n == w.total && w.op == transport.OpSend {
			h.flags = flagLast | w.solicited()
		}
		q.frame(h, w)
		if w.total == 0 {
			break
		}
	}
	if w.op == transport.OpSendInvalidate {
		if q.full(0) {
			return false
		}
		q.out.begin(header{op: frameInvalidate, flags: flagLast | w.solicited(), a: w.number, b: w.other})
	}
	w.done = true
	return true
}

// solicited is the flag of a frame whose Recv is worth an event.
func (w *wqe) solicited() uint8 {
	if w.flags&transport.FlagSolicited != 0 {
		return flagSolicited
	}
	return 0
}

// tellWrote tells the peer of a Write if it wants to be told.
func (q *qp) tellWrote() {
	sys.StoreRelease(&q.out.wrote, q.out.wrote+1)
	q.tell()
}

// tellPlaced is tellWrote behind a look at whether that is wanted.
func (q *qp) tellPlaced() {
	if atomic.LoadUint64(q.attention) != 0 {
		q.tellWrote()
	}
}

// tell has the peer look at this connection, if it wants to be told.
func (q *qp) tell() {
	if q.fenced {
		sys.FullBarrier() // what was published is seen, or attention is
	}
	if atomic.LoadUint64(q.attention) == 0 {
		return
	}
	for i := range q.far.queues {
		q.far.queues[i].ring()
	}
}
