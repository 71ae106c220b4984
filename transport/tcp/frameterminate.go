package tcp

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

const terminateText = handshake.MaxText

// frameTerminate says why its sender has cut the connection.
type frameTerminate struct{ ordinaryFrame }

func (frameTerminate) end(q *qp, i *incoming) error {
	q.terminated(i.Header, i.control)
	return nil
}

func (frameTerminate) arrived(b *multiLane, i *incoming) (sequence.Kind, stop, error) {
	b.terminate = &pendingTerminate{i.LaneHeader, append([]byte(nil), i.control...)}
	return sequence.Data, stopTerminate, nil
}

// TellFailed says why the connection is cut, if the socket takes it at once and no frame stands half-written.
func (q *qp) TellFailed(cause error) {
	if !q.open || q.awaitingFirstFrame {
		return // the peer may be in streaming mode yet
	}
	code := frame.ReasonLocal
	var read uint64
	var v *frame.Violation
	var refused *queuepair.RefusedRead
	switch {
	case errors.As(cause, &v):
		code = v.Code
	case errors.As(cause, &refused):
		code, read = frame.ReasonAccess, refused.Number+1
	case errors.Is(cause, transport.ErrProtocol):
		code = frame.ReasonProtocol
	}
	text := cause.Error()
	text = text[:min(len(text), terminateText)]
	h := frame.Header{Op: frame.Terminate, Flags: frame.Last, A: uint64(code), B: read}
	q.sequencer.sendTerminate(h, []byte(text))
}

// refuseRead ends the QP over a Read or an Atomic that may not be carried out; it completes in error at the
// peer, with the reason.
func (q *qp) refuseRead(a *readResponse, err error) {
	q.Fail(&queuepair.RefusedRead{Number: a.number, Atomic: a.atomic, Err: err}, transport.StatusFlushed)
}

// terminated takes a Terminate: the first error was on the other side.
func (q *qp) terminated(h frame.Header, text []byte) {
	code := frame.Reason(h.A)
	cause := transport.ErrProtocol
	status := transport.StatusRemoteOp
	switch code {
	case frame.ReasonAccess, frame.ReasonKey:
		cause, status = transport.ErrAccess, transport.StatusRemoteAccess
	case frame.ReasonLocal:
		cause = transport.ErrPeerLost
	case frame.ReasonNoRecv:
		status = transport.StatusRNR
	}
	if h.B != 0 {
		if w := q.reading(); w != nil && w.Number == h.B-1 {
			w.Failed = status
		}
	}
	q.sequencer.refused(status)
	q.Fail(fmt.Errorf("%w (%v: %q): %w", queuepair.ErrTerminated, code, text, cause), transport.StatusFlushed)
}
