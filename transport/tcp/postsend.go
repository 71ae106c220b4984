package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// gatherFrames is how many requests FlagMore holds back before they go out all the same.
const gatherFrames = 64

// PostSend checks a request, queues it, and sends it at once unless more is to follow.
func (q *qp) PostSend(wr *transport.SendWR) error {
	if q.state != transport.StateReady && q.state != transport.StateDraining {
		return fmt.Errorf("%w: it is %v (rank %d at %s)", transport.ErrState, q.state, q.peer, q.remote)
	}
	total, err := q.pd.CheckSend(&q.windows, wr, &q.limits)
	if err != nil {
		return err
	}
	if !q.sq.Post(q.pd, &q.windows, wr, total, q.conf.SendWR) {
		return transport.ErrQueueFull
	}
	if wr.Flags&transport.FlagMore == 0 || q.sq.Tail-q.at.next >= gatherFrames {
		if !q.blocked {
			q.sequencer.transmit()
		}
	}
	return nil
}

// Flush sends what FlagMore held back.
func (q *qp) Flush() {
	if q.open && !q.blocked && q.sequencer.hasOutput() {
		q.sequencer.transmit()
	}
}

// retire completes requests from the head of the queue, in order, as far as they are done.
func (q *qp) retire() {
	for q.sq.Head != q.sq.Tail {
		w := q.sq.At(q.sq.Head)
		if !w.Done {
			return
		}
		q.sq.Head++ // first: if the queue is overrun, complete flushes the rest
		q.complete(w)
	}
}

// complete reports a request that has succeeded, if it asked for that.
func (q *qp) complete(w *verbs.Request) {
	if w.Flags&transport.FlagSignaled != 0 {
		q.scq.Push(transport.WC{ID: w.ID, QP: q.num, Op: w.Op, Bytes: w.Got})
		if w.Flags&transport.FlagNotify != 0 {
			q.scq.Raise()
		}
	}
}
