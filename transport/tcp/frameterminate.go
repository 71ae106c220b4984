package tcp

import (
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

func (frameTerminate) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	r.terminate = &pendingTerminate{i.LaneHeader, append([]byte(nil), i.control...)}
	return sequence.Data, stopTerminate, nil
}

// TellFailed sends the peer a Terminate, if the socket accepts it at once and no frame is half-written.
func (q *qp) TellFailed(cause error) {
	if !q.open || q.awaitingFirstFrame {
		return // the peer may still be in streaming mode
	}
	t := queuepair.TerminateOf(cause, terminateText)
	q.sequencer.sendTerminate(frame.Header{Op: frame.Terminate, Flags: frame.Last,
		A: uint64(frame.ReasonOf(t.Reason)), B: t.Read}, t.Text)
}

// terminated handles a Terminate.
func (q *qp) terminated(h frame.Header, text []byte) {
	code := frame.Reason(h.A)
	t := queuepair.Terminate{Reason: code.Violation(), Read: h.B, Text: text}
	status, _ := t.Reason.SeenByPeer()
	q.sequencer.refused(status)
	q.Terminated(t, code, q.reading())
}
