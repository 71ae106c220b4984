package tcp

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

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
	q.responses = responseQueue{}
}

// receiveFailed ends the queue pair over what is wrong with what has come: the peer's frames, or the
// connection.
func (q *qp) receiveFailed(err error) {
	var v *frame.Violation
	switch {
	case errors.As(err, &v):
		if v.Status != 0 {
			q.FailRecv(err, v.Status, v.Err)
			return
		}
		q.Fail(err, transport.StatusFlushed)
	case errors.Is(err, queuepair.ErrTerminated), errors.Is(err, transport.ErrProtocol),
		errors.Is(err, transport.ErrAccess):
		q.Fail(err, transport.StatusFlushed)
	default:
		q.Fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
	}
}
