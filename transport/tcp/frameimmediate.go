package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameImmediate ends a Write with immediate: it consumes a Recv without writing to its memory.
type frameImmediate struct{ ordinaryFrame }

func (q *qp) makeImmediate(o *frame.Batch, w *verbs.Request) {
	o.Begin(frame.Header{Op: frame.Immediate, Flags: lastFlags(w), A: w.Number, B: w.Imm}, 0)
	q.at.next, q.at.off = q.at.next+1, 0
}

func (frameImmediate) end(q *qp, i *incoming) error {
	if q.RQ.Front() == nil {
		return violation.ErrNoRecv
	}
	if i.A != q.recvMsn || q.recvOff > 0 {
		return fmt.Errorf("%w: message %d where %d at %d is due", transport.ErrProtocol, i.A, q.recvMsn,
			q.recvOff)
	}
	imm, err := verbs.Immediate(i.B)
	if err != nil {
		return err
	}
	q.completeMessage(transport.WC{Imm: imm, HasImm: true}, i.Flags)
	return nil
}

func (frameImmediate) beginAhead(r *laneReceiver, i *incoming) error { return r.findRecv(i) }

func (frameImmediate) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	m := r.messageAt(i.A)
	m.op, m.flags, m.imm = frame.Immediate, i.Flags, i.B
	return sequence.Message, stopNone, nil
}
