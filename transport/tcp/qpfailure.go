package tcp

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// fail ends the QP with its first error. The peer is told if the socket takes it at once.
func (q *qp) fail(cause error, status transport.Status) {
	if q.state == transport.StateClosed || q.state == transport.StateError {
		return
	}
	q.err = q.blame(cause)
	q.state = transport.StateError
	q.tellTerminate(cause)
	q.disconnect()
	q.flush(status)
}

// blame says with whom it happened.
func (q *qp) blame(cause error) error {
	return fmt.Errorf("connection with rank %d at %s: %w", q.peer, q.remote, cause)
}

func (q *qp) disconnect() {
	if !q.open {
		return
	}
	q.scq.detach(q)
	if q.rcq != q.scq {
		q.rcq.detach(q)
	}
	q.open = false
	q.sequencer.close()
	q.windows.UnbindAll()
}

// flush completes what is posted.
func (q *qp) flush(first transport.Status) {
	verbs.Flush(&q.sq, &q.rq, q.scq, q.rcq, first, q.flushed)
	q.responses = responseQueue{}
}

func (q *qp) flushed(id uint64, op transport.Opcode) transport.WC {
	err := q.err
	if err == nil {
		err = transport.ErrClosed
	}
	return transport.WC{ID: id, QP: q.num, Op: op, Status: transport.StatusFlushed, Err: err}
}

// receiveFailed ends the queue pair over what is wrong with what has come: the peer's frames, or the
// connection.
func (q *qp) receiveFailed(err error) {
	var v *frame.Violation
	switch {
	case errors.As(err, &v):
		if v.Status != 0 {
			if r := q.rq.Front(); r != nil {
				wc := q.flushed(r.ID, transport.OpRecv)
				wc.Status, wc.Err = v.Status, q.blame(v.Err)
				q.rq.Pop()
				q.rcq.Push(wc)
			}
		}
		q.fail(err, transport.StatusFlushed)
	case errors.Is(err, errTerminated), errors.Is(err, transport.ErrProtocol),
		errors.Is(err, transport.ErrAccess):
		q.fail(err, transport.StatusFlushed)
	default:
		q.fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
	}
}
