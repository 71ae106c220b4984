package shm

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
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
		head, next, tail := q.SQ.Head, q.send.next, q.out.tail
		q.answer.responseFrames()
		if q.connected() {
			q.send.requests(&budget)
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
		if q.out.tail == tail && q.SQ.Head == head && q.send.next == next {
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
		sys.StoreFenced(&q.out.wants, wants) // consumed is read after it
		if q.out.waits && q.out.consumed != q.out.tail {
			before := q.out.consumed
			if q.out.loadConsumed(); q.out.consumed != before {
				q.scq.wakeSleepers()
			}
		}
	}
	q.busy = q.SQ.Head != q.SQ.Tail || q.answer.owes() || q.CloseDue()
}

// beginPlacing announces that this end will look up a key and place bytes with it; false if the peer no
// longer accepts any.
func (w *fastWrite) beginPlacing() bool {
	w.placementMark++
	if w.fenced {
		sys.StoreFenced(w.placementSeq, w.placementMark)
	} else {
		sys.StoreRelease(w.placementSeq, w.placementMark)
	}
	return atomic.LoadUint64(w.notifyEnable)&notifyClosed == 0
}

// endPlacing announces that they are placed.
func (w *fastWrite) endPlacing() {
	w.placementMark++
	if w.fenced {
		sys.StoreFenced(w.placementSeq, w.placementMark)
	} else {
		sys.StoreRelease(w.placementSeq, w.placementMark)
	}
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
