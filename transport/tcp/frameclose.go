package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameClose ends a direction in order: no request follows it.
type frameClose struct{ ordinaryFrame }

// makeClose makes the Close frame when all else has been sent and answered.
func (q *qp) makeClose(o *frame.Batch) bool {
	c := &q.at
	if !q.CloseDue() || c.ended || q.SQ.Len() != 0 || c.response != q.answer.queue.Tail || !o.Empty() {
		return false
	}
	o.Begin(frame.Header{Op: frame.Close, Flags: frame.Last}, 0)
	c.ended = true
	return true
}

func (frameClose) end(q *qp, _ *incoming) error { return q.peerCloses() }

func (frameClose) arrived(*laneReceiver, *incoming) (sequence.Kind, stop, error) {
	return sequence.Data, stopClose, nil
}

// peerCloses handles the peer's Close.
func (q *qp) peerCloses() error {
	if q.answer.queue.Head != q.answer.queue.Tail {
		return fmt.Errorf("%w: Close before its Reads were complete", transport.ErrProtocol)
	}
	q.PeerClosed()
	q.sequencer.acknowledgeClose()
	q.MaybeClosed()
	return nil
}

// mayFollowClose reports whether a frame may follow the peer's Close: the peer still answers our Reads.
func mayFollowClose(op frame.Op) bool {
	switch op {
	case frame.Terminate, frame.ReadWrite, frame.AtomicDone, frame.Alive:
		return true
	}
	return false
}
