package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// deliver delivers everything that has arrived with nothing missing before it, in order (H3). Then it returns
// the deferred error, if that is next.
func (r *laneReceiver) deliver() error {
	q := r.q
	for q.open {
		run, ok := r.in.Deliver()
		if !ok {
			break
		}
		if err := r.deliverRun(run); err != nil {
			return err
		}
	}
	if q.open && r.deferred.n != 0 && r.deferred.n <= r.in.Next() {
		return r.deferred.err
	}
	return nil
}

// deliverRun delivers a run: it releases its Read Requests and Atomics, completes its messages, and completes
// our Reads whose answers end in it. Then it carries out what must happen exactly after the run.
func (r *laneReceiver) deliverRun(run sequence.Run) error {
	q := r.q
	for range run.Requests {
		if err := r.releaseRequest(); err != nil {
			return err
		}
	}
	for range run.Messages {
		if err := r.completeRecv(); err != nil || !q.open {
			return err
		}
	}
	for range run.Responses {
		if err := r.completeRead(); err != nil || !q.open {
			return err
		}
	}
	switch stop(run.End) {
	case stopClose:
		return q.peerCloses() // acknowledges it at once: the peer waits for that
	case stopTerminate:
		r.onTerminate()
	}
	return nil
}

// completeRecv completes the oldest posted Recv, as recorded when its message arrived.
func (r *laneReceiver) completeRecv() error {
	q := r.q
	e := r.messageAt(q.Message.Number)
	x := *e
	*e = messageProgress{}
	if q.RQ.Front() == nil {
		return violation.ErrNoRecv
	}
	if x.begun != x.got {
		return fmt.Errorf("%w: Send %d ends before its frames", transport.ErrProtocol, q.Message.Number)
	}
	wc := transport.WC{Bytes: x.got}
	switch x.op {
	case frame.Send:
		if x.got != x.bytes {
			return fmt.Errorf("%w: Send %d of %d bytes, of which %d have come", transport.ErrProtocol,
				q.Message.Number, x.bytes, x.got)
		}
	case frame.Immediate:
		if x.got != 0 {
			return fmt.Errorf("%w: an immediate after %d bytes of Send %d", transport.ErrProtocol, x.got,
				q.Message.Number)
		}
		imm, err := verbs.Immediate(x.imm)
		if err != nil {
			return err
		}
		wc.Imm, wc.HasImm = imm, true
	default:
		return fmt.Errorf("%w: message %d is missing", transport.ErrProtocol, q.Message.Number)
	}
	r.ackUrgent = true
	q.CompleteMessage(wc, x.flags&frame.Solicited != 0)
	return nil
}

// completeRead completes our oldest Read or Atomic: its answer has been received completely, and so has
// everything before it.
func (r *laneReceiver) completeRead() error {
	q := r.q
	w := q.reading()
	if w == nil || w.Got != w.Total || w.Op == transport.OpRead && w.Begun != w.Got {
		return fmt.Errorf("%w: the end of a Read or an Atomic which is not what is due",
			transport.ErrProtocol)
	}
	q.readIsDone(w)
	return nil
}

// onTerminate handles the peer's Terminate, in its turn or when nothing more can arrive before it.
func (r *laneReceiver) onTerminate() {
	q := r.q
	if r.terminate == nil || !q.open {
		return
	}
	q.terminated(r.terminate.Header, r.terminate.control)
}
