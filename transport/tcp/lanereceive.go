package tcp

import (
	"errors"
	"fmt"
	"io"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// laneReceiver is the receiving side of a queue pair over lanes: it orders the frames, delivers them in their
// turn, and acknowledges them.
type laneReceiver struct {
	m         *multiLane
	q         *qp
	in        *sequence.Inbound[heldTail]
	messages  []messageProgress // progress of the messages for posted Recvs, by number
	released  uint64            // Reads and Atomics of the peer that were released in order
	deferred  deferredError     // the first error, which is reported in its turn
	terminate *pendingTerminate // the peer's Terminate, which is handled in its turn

	ackSent      uint64 // the last acknowledgement sent
	unackedBytes int    // bytes received since then
	ackUrgent    bool   // a message was received since then: this end may stop polling, and the sender waits
}

func (r *laneReceiver) init(m *multiLane) {
	r.m, r.q, r.ackSent = m, m.q, 1
	r.in = sequence.NewInbound[heldTail](m.now)
	size := 1
	for size < r.q.Attr.RecvWR {
		size *= 2
	}
	r.messages = make([]messageProgress, size)
}

// unackedFrames returns how many received frames are not acknowledged.
func (r *laneReceiver) unackedFrames() uint64 { return r.in.Next() - r.ackSent }

func (r *laneReceiver) onAckSent() { r.ackSent, r.unackedBytes, r.ackUrgent = r.in.Next(), 0, false }

// ackDue reports whether this pass must send an acknowledgement.
func (r *laneReceiver) ackDue() bool {
	n := r.unackedFrames()
	return n > 0 && (r.ackUrgent || n >= ackFrames || r.unackedBytes >= ackBytes)
}

// deferredError is the error of a frame. It ends the queue pair when everything before the frame has been
// delivered.
type deferredError struct {
	n   uint64 // 0: none
	err error
}

// pendingTerminate is a Terminate of the peer.
type pendingTerminate struct {
	frame.LaneHeader
	control []byte
}

// read places the data received over a lane, if any.
func (l *laneConn) read() (came bool) {
	m := l.m
	before := l.keepalive.Received // true for a new lane, which is no sign of life
	l.keepalive.Received = false
	n, err := l.receive()
	m.keepalive.Received = m.keepalive.Received || l.keepalive.Received
	l.keepalive.Received = before || l.keepalive.Received
	m.recv.unackedBytes += n
	switch {
	case err == nil:
		return n > 0
	case errors.Is(err, io.EOF):
		m.lose(l, errEnded)
	default:
		l.failed(err)
	}
	return true
}

// begin handles a frame's header and checks what can be checked before its payload. It drops duplicates
// before any of their keys is used.
func (l *laneConn) begin(header []byte) error {
	i, r, q := &l.in, &l.m.recv, l.q
	if q.checked {
		if err := frame.CheckHeader(header, frame.LaneHeaderSize); err != nil {
			return err
		}
		i.sum = 0
	}
	h, err := frame.ParseOverLane(header, l.number)
	if err != nil {
		return err
	}
	i.begun(h)
	if err := l.checkMode(h.Op); err != nil {
		return err
	}
	if err := l.m.send.onAck(h.Ack); err != nil {
		return err
	}
	if !q.open || h.Number == 0 {
		i.drop = !q.open
		return nil
	}
	fresh, err := r.in.Fresh(h.Number)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	if !fresh {
		l.m.stats.Duplicates++
	}
	if i.drop = !fresh || r.deferred.n != 0 && h.Number >= r.deferred.n; i.drop {
		return nil
	}
	if q.PeerEnd() && !mayFollowClose(h.Op) {
		return fmt.Errorf("%w: %v after Close", transport.ErrProtocol, h.Op)
	}
	i.bad = frameKinds[h.Op].beginAhead(r, i)
	return nil
}

// checkMode requires Ready as the first frame from the end that dialed the lane, and nowhere else.
func (l *laneConn) checkMode(op frame.Op) error {
	if l.awaitingFirstFrame {
		// any frame shows that the peer is in RDMA mode
		l.awaitingFirstFrame, l.q.awaitingFirstFrame = false, false
		if op != frame.Ready {
			return fmt.Errorf("%w: %v where Ready must come first", transport.ErrProtocol, op)
		}
	} else if op == frame.Ready {
		return fmt.Errorf("%w: Ready a second time, or from the responder", transport.ErrProtocol)
	}
	return nil
}

// misplaced notes the error of a frame; it is reported in the frame's turn.
func (l *laneConn) misplaced(err error) error {
	l.in.bad = err
	return nil
}

// holdsTail reports whether frames of the present Write are missing.
func (l *laneConn) holdsTail() bool {
	i := &l.in
	return i.Op == frame.Write && i.Flags&frame.Last != 0 && !l.m.recv.in.Whole(i.Ref, i.Number)
}

// forget undoes the counts of the frame that a lane was receiving: it will be resent.
func (l *laneConn) forget() {
	i, q := &l.in, l.q
	if !i.inside || i.Number == 0 || i.drop || i.bad != nil {
		return
	}
	switch i.Op {
	case frame.Send:
		l.m.recv.messageAt(i.A).begun -= i.Length
	case frame.ReadWrite:
		q.SQ.At(i.asks).Begun -= i.Length
	}
}

// end handles a frame whose payload was received.
func (l *laneConn) end() error {
	i, r := &l.in, &l.m.recv
	if i.drop {
		return nil
	}
	if i.Number == 0 {
		_, _, err := frameKinds[i.Op].arrived(r, i)
		return err
	}
	// A frame is resent only after this end has closed the lane that carried it. If the frame has arrived
	// completely over another lane since it began here, it was sent twice, and nothing of it may count twice.
	if fresh, _ := r.in.Fresh(i.Number); !fresh {
		return fmt.Errorf("%w: frame %d was sent over two lanes at once", transport.ErrProtocol, i.Number)
	}
	if i.bad != nil {
		r.deferError(i.Number, i.bad)
		return r.deliver()
	}
	kind, stop, err := frameKinds[i.Op].arrived(r, i)
	if err != nil {
		r.deferError(i.Number, err)
		return r.deliver()
	}
	if i.Op == frame.ReadWrite {
		l.readBytes += uint64(i.Length)
	}
	r.in.Arrived(i.Number, kind, uint8(stop))
	if r.in.Holds() > 0 { // other frames lie between those of a Write
		r.releaseTails()
	}
	return r.deliver()
}

// deferError notes the error of a frame, to be reported after everything before it is delivered.
func (r *laneReceiver) deferError(n uint64, err error) {
	if r.deferred.n == 0 || n < r.deferred.n {
		r.deferred = deferredError{n, err}
	}
}

// onAck handles the peer's acknowledgement of frames that this end has sent.
func (s *laneSender) onAck(next uint64) error {
	below := s.out.Next()
	for _, l := range s.m.conns {
		if l.partialNumber != 0 {
			below = min(below, l.partialNumber)
		}
	}
	f, err := s.out.Ack(next, below)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	if f != nil {
		s.q.onWritten(f.after)
	}
	return nil
}
