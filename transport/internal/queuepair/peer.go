package queuepair

import (
	"fmt"
	"sync/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// Message is the peer's next untagged message, which uses the oldest posted Recv.
type Message struct {
	Number uint64
	Placed int // bytes, where they come in order
}

// PeerSends returns the Recv of n bytes of a Send of the peer, from an offset on, which come in order.
func (q *QP) PeerSends(number, off uint64, n int) (*verbs.Recv, error) {
	e, m := q.RQ.Front(), &q.Message
	switch {
	case e == nil:
		return nil, violation.ErrNoRecv
	case number != m.Number || off != uint64(m.Placed):
		return nil, fmt.Errorf("%w: Send %d at %d where %d at %d is due", transport.ErrProtocol, number, off,
			m.Number, m.Placed)
	case n > e.Total-m.Placed:
		return nil, violation.ErrTooLong(e.Total)
	}
	return e, nil
}

// PeerSendsImmediate carries out an Immediate of the peer.
func (q *QP) PeerSendsImmediate(number, word uint64, solicited bool) error {
	m := &q.Message
	if q.RQ.Front() == nil {
		return violation.ErrNoRecv
	}
	if number != m.Number || m.Placed > 0 {
		return fmt.Errorf("%w: message %d where %d at %d is due", transport.ErrProtocol, number, m.Number,
			m.Placed)
	}
	imm, err := verbs.Immediate(word)
	if err == nil {
		q.CompleteMessage(transport.WC{Imm: imm, HasImm: true}, solicited)
	}
	return err
}

// CompleteMessage completes the oldest posted Recv by a message of the peer.
func (q *QP) CompleteMessage(wc transport.WC, solicited bool) {
	q.Message.Number++
	q.Message.Placed = 0
	q.Received(wc, solicited)
}

// PeerAdds carries out an Atomic of the peer, and returns the word as it was.
func (q *QP) PeerAdds(key transport.Key, off, operand uint64) (uint64, error) {
	m, err := q.PD.Find(key, transport.RemoteAtomic, off, verbs.WordSize)
	if err != nil {
		return 0, err
	}
	if !verbs.Aligned(m.Mem, int(off)) {
		return 0, place.ErrUnaligned(key, off)
	}
	old := atomic.AddUint64(place.Word(m.Mem, int(off)), operand) - operand
	q.ReportPlaced()
	return old, nil
}

// PeerAsks checks the number of a Read or an Atomic of the peer: numbers increase, because answers are
// identified by them.
func (q *QP) PeerAsks(number uint64) error {
	if number < q.askedNext {
		return fmt.Errorf("%w: Read or Atomic %d after %d", transport.ErrProtocol, number, q.askedNext-1)
	}
	q.askedNext = number + 1
	return nil
}

// Refuse ends the queue pair because a Read or an Atomic of the peer is not allowed; it completes at the peer
// with an error, with the reason.
func (q *QP) Refuse(number uint64, isAtomic bool, err error) {
	q.Fail(&RefusedRead{Number: number, Atomic: isAtomic, Err: err}, transport.StatusFlushed)
}

// RefusedRead is the error of a Read or an Atomic of the peer that is not allowed.
type RefusedRead struct {
	Number uint64
	Atomic bool
	Err    error
}

func (r *RefusedRead) Error() string {
	what := "Read"
	if r.Atomic {
		what = "Atomic"
	}
	return fmt.Sprintf("%s %d from the peer: %v", what, r.Number, r.Err)
}

func (r *RefusedRead) Unwrap() error { return r.Err }
