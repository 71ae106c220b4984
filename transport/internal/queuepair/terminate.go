package queuepair

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// Terminate is the message that one end sends when it cuts the connection.
type Terminate struct {
	Reason violation.Reason
	Read   uint64 // 1 + the number of the Read or Atomic that was refused; 0: none
	Text   []byte
}

// TerminateOf returns the Terminate for an error that ends the queue pair, with at most maxText bytes of
// text.
func TerminateOf(cause error, maxText int) Terminate {
	t := Terminate{Reason: violation.Of(cause)}
	var refused *RefusedRead
	if errors.As(cause, &refused) {
		t.Reason, t.Read = violation.Access, refused.Number+1
	}
	text := cause.Error()
	t.Text = []byte(text[:min(len(text), maxText)])
	return t
}

// Terminated ends the queue pair after a Terminate of the peer. code is the reason as the provider's protocol
// encodes it. asking is the oldest Read or Atomic that the peer has not answered, or nil.
func (q *QP) Terminated(t Terminate, code fmt.Stringer, asking *verbs.Request) {
	status, cause := t.Reason.SeenByPeer()
	if asking != nil && t.Read != 0 && asking.Number == t.Read-1 {
		asking.Failed = status
	}
	q.Fail(fmt.Errorf("%w (%v: %q): %w", ErrTerminated, code, t.Text, cause), transport.StatusFlushed)
}

// ReceiveFailed ends the queue pair after an error of a received message or of the connection.
func (q *QP) ReceiveFailed(err error) {
	var v *violation.Error
	switch {
	case errors.As(err, &v) && v.Status != 0:
		q.FailRecv(err, v.Status, v.Err)
	case IsPeers(err):
		q.Fail(err, transport.StatusFlushed)
	default:
		q.Fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
	}
}

// IsPeers reports whether an error is in the peer's message, rather than in the connection.
func IsPeers(err error) bool {
	var v *violation.Error
	return errors.As(err, &v) || errors.Is(err, ErrTerminated) || errors.Is(err, transport.ErrProtocol) ||
		errors.Is(err, transport.ErrAccess)
}
