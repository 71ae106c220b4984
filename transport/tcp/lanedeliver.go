package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// deliver tells what has arrived with nothing missing before it, in order (H3), and then what is wrong with
// what comes next, if anything.
func (b *multiLane) deliver() error {
	q := b.q
	for q.open {
		run, ok := b.in.Deliver()
		if !ok {
			break
		}
		if err := b.deliverRun(run); err != nil {
			return err
		}
	}
	if q.open && b.deferred.n != 0 && b.deferred.n <= b.in.Next() {
		return b.deferred.err
	}
	return nil
}

// deliverRun tells what the record of a run says: the doorbell for its Read Requests, a completion for each
// of its messages, and the end of each of our Reads; then what has to happen exactly after it.
func (b *multiLane) deliverRun(run sequence.Run) error {
	q := b.q
	for range run.Requests {
		if err := b.doorbell(); err != nil {
			return err
		}
	}
	messages := run.Messages
	if stop(run.End) == stopInvalidate {
		messages--
	}
	for range messages {
		if err := b.completeRecv(); err != nil || !q.open {
			return err
		}
	}
	for range run.Responses {
		if err := b.completeRead(); err != nil || !q.open {
			return err
		}
	}
	switch stop(run.End) {
	case stopInvalidate:
		return b.completeRecv()
	case stopClose:
		return q.peerCloses() // which acknowledges it at once: the peer waits for that
	case stopTerminate:
		b.onTerminate()
	}
	return nil
}

// completeRecv completes the oldest posted Recv, with the particulars that were noted when its message came.
func (b *multiLane) completeRecv() error {
	q := b.q
	e := b.messageAt(q.recvMsn)
	x := *e
	*e = messageProgress{}
	if q.RQ.Front() == nil {
		return violation.ErrNoRecv
	}
	if x.begun != x.got {
		return fmt.Errorf("%w: Send %d ends before its frames", transport.ErrProtocol, q.recvMsn)
	}
	wc := transport.WC{Bytes: x.got}
	switch x.op {
	case frame.Send:
		if x.got != x.bytes {
			return fmt.Errorf("%w: Send %d of %d bytes, of which %d have come", transport.ErrProtocol,
				q.recvMsn, x.bytes, x.got)
		}
	case frame.Immediate:
		if x.got != 0 {
			return fmt.Errorf("%w: an immediate after %d bytes of Send %d", transport.ErrProtocol, x.got,
				q.recvMsn)
		}
		imm, err := verbs.Immediate(x.word)
		if err != nil {
			return err
		}
		wc.Imm, wc.HasImm = imm, true
	case frame.Invalidate:
		if err := q.invalidate(x.word); err != nil {
			return err
		}
		wc.Key = transport.Key(x.word)
	default:
		return fmt.Errorf("%w: message %d is not the one that came", transport.ErrProtocol, q.recvMsn)
	}
	b.ackUrgent = true
	q.completeMessage(wc, x.flags)
	return nil
}

// completeRead reports our oldest Read or Atomic: its answer has come whole, and so has everything before
// that.
func (b *multiLane) completeRead() error {
	q := b.q
	w := q.reading()
	if w == nil || w.Got != w.Total || w.Op == transport.OpRead && w.Begun != w.Got {
		return fmt.Errorf("%w: the end of a Read or an Atomic which is not what is due",
			transport.ErrProtocol)
	}
	q.readIsDone(w)
	return nil
}

func (b *multiLane) acknowledgeClose() { b.acknowledge() }

// onTerminate takes the peer's Terminate, when its turn has come or nothing will come before it any more.
func (b *multiLane) onTerminate() {
	q := b.q
	if b.terminate == nil || !q.open {
		return
	}
	q.terminated(b.terminate.Header, b.terminate.control)
}

// refused notes how the request ends whose frame the peer has found to be wrong, with its Terminate.
func (b *multiLane) refused(status transport.Status) {
	if n := b.terminate.Ref; n >= b.out.First() && n < b.out.Next() {
		switch s := b.out.What(n); s.Op {
		case frame.Write, frame.Send, frame.Immediate, frame.Invalidate:
			b.q.SQ.At(s.source).Failed = status
		}
	}
}
