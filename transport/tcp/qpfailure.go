package tcp

import "github.com/weft-mpi/weft/transport/internal/ring"

// Disconnect closes the links. Nothing is placed after it.
func (q *qp) Disconnect() {
	if !q.open {
		return
	}
	q.scq.detach(q)
	if q.rcq != q.scq {
		q.rcq.detach(q)
	}
	q.open = false
	q.sequencer.close()
	q.answer.queue = ring.Queue[readResponse]{}
}
