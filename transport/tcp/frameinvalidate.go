package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameInvalidate ends a Send with invalidate: the key is invalidated before the message is reported.
type frameInvalidate struct{ ordinaryFrame }

func (q *qp) makeInvalidate(o *frame.Batch, w *verbs.Request) {
	o.Begin(frame.Header{Op: frame.Invalidate, Flags: lastFlags(w), A: w.Number, B: w.Other}, 0)
	q.at.next, q.at.off = q.at.next+1, 0
}

func (frameInvalidate) end(q *qp, i *incoming) error {
	if q.RQ.Front() == nil {
		return violation.ErrNoRecv
	}
	if i.A != q.recvMsn {
		return fmt.Errorf("%w: message %d where %d is due", transport.ErrProtocol, i.A, q.recvMsn)
	}
	if err := q.invalidate(i.B); err != nil {
		return err
	}
	q.completeMessage(transport.WC{Bytes: q.recvOff, Key: transport.Key(i.B)}, i.Flags)
	return nil
}

func (frameInvalidate) beginAhead(r *laneReceiver, i *incoming) error { return r.findRecv(i) }

func (frameInvalidate) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	m := r.messageAt(i.A)
	m.op, m.flags, m.word = frame.Invalidate, i.Flags, i.B
	return sequence.Message, stopInvalidate, nil
}

// invalidate invalidates a window's key at the peer's request.
func (q *qp) invalidate(key uint64) error {
	m := q.PD.Window(&q.Windows, transport.Key(key))
	if m == nil {
		return violation.ErrInvalidate(key)
	}
	m.Unbind()
	return nil
}

// carryOut carries out a Bind or an Invalidate of this end, once; they need no frame. If the window or region
// is gone the QP ends, after earlier frames.
func (q *qp) carryOut(o *frame.Batch, w *verbs.Request) bool {
	if w.Ended {
		return true
	}
	err := q.PD.CarryOut(&q.Windows, w)
	if err == nil {
		w.Ended = true
		return true
	}
	if o.Empty() { // earlier frames go out first
		w.Failed = transport.StatusLocalProt
		q.Fail(err, transport.StatusFlushed)
	}
	return false
}
