package tcp

import (
	"github.com/weft-mpi/weft/transport/internal/verbs"
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
	return q.PeerSendsImmediate(i.A, i.B, i.Flags&frame.Solicited != 0)
}

func (frameImmediate) beginAhead(r *laneReceiver, i *incoming) error { return r.findRecv(i) }

func (frameImmediate) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	m := r.messageAt(i.A)
	m.op, m.flags, m.imm = frame.Immediate, i.Flags, i.B
	return sequence.Message, stopNone, nil
}
