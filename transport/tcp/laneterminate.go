package tcp

import (
	"fmt"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
)

// lastFrame is the Terminate of a queue pair over lanes, the last frame of its sequence.
type lastFrame struct {
	frame.LaneHeader
	text []byte
}

// append appends the frame as a lane carries it.
func (f *lastFrame) append(b []byte, lane uint16, checked bool) []byte {
	return frame.AppendOverLane(b, f.Header, lane, f.Number, f.Ack, f.Ref, f.text, checked)
}

// sendTerminate sends the reason why the connection is cut, if a lane accepts it at once. The frame may be
// lost with its lane, so it is kept for a peer that joins another.
func (m *multiLane) sendTerminate(h frame.Header, text []byte) {
	last := &lastFrame{frame.LaneHeader{Header: h, Number: m.send.out.Next(), Ack: m.recv.in.Next(),
		Ref: m.recv.deferred.n}, text}
	m.dial.lastFrame.Store(last)
	for _, l := range m.conns {
		if l.awaitingFirstFrame || l.blocked || !l.partial.Empty() {
			continue
		}
		var encoded []byte
		if !l.greeted {
			encoded = frame.AppendOverLane(encoded, frame.Header{Op: frame.Ready, Flags: frame.Last},
				l.number, 0, last.Ack, 0, nil, m.q.checked)
		}
		l.link.WriteFrame(last.append(encoded, l.number, m.q.checked))
		break
	}
	for _, l := range m.conns {
		link.Drain(l.fd)
	}
}

// terminateWait is how long a lane over which a Terminate was repeated stays open for the peer to read it.
const terminateWait = 2 * time.Second

// repeatTerminate sends the Terminate of an ended queue pair over a lane that the peer has made since,
// because the peer may not have received it. The queue pair itself is not used.
func (e *endpoint) repeatTerminate(h *setup.Handshake, d *laneDialer, last *lastFrame) error {
	if err := h.Accept(e.offer(d.q.Attr.QPConfig, h), nil); err != nil {
		return err
	}
	ready := make([]byte, frame.LaneHeaderSizeWith(d.q.checked))
	if err := h.ReadFull(ready); err != nil {
		return err
	}
	f, err := frame.ParseOverLane(ready, h.Lane())
	if err != nil {
		return err
	}
	if f.Op != frame.Ready {
		return fmt.Errorf("%w: %v where Ready must come first", transport.ErrProtocol, f.Op)
	}
	if err := h.Write(last.append(nil, h.Lane(), d.q.checked)); err != nil {
		return err
	}
	// The peer learns that nothing follows: missing frames before this one will not arrive.
	h.Finish(terminateWait)
	return handshake.ErrGone
}
