package tcp

import (
	"errors"
	"fmt"
	"io"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
)

// singleLink carries a queue pair over one connection. If the connection is lost, so is the peer.
type singleLink struct{ conn }

// newSingleLink gives a queue pair its connection, encrypted if there is a session.
func newSingleLink(q *qp, fd int, s *link.Session) {
	l := &singleLink{conn{q: q, link: link.New(fd, s), fd: fd, keepalive: keepalive.NewState()}}
	l.takes = l
	l.in.size = frame.HeaderSizeWith(q.checked)
	q.sequencer = l
	l.readsAhead = s == nil
	if s == nil && !q.checked {
		q.inline = l
	}
}

// start drives the queue pair once: data after the handshake may already be in a TLS session, where no poller
// sees it.
func (s *singleLink) start() { s.drive() }

func (s *singleLink) drive() bool {
	if s.hasOutput() {
		s.transmit()
	}
	if s.fd < 0 {
		return false
	}
	came := s.read()
	if came && s.fd >= 0 && s.hasOutput() {
		s.transmit()
	}
	return came
}

func (s *singleLink) hasOutput() bool {
	return !s.partial.Empty() || s.link.Pending() > 0 || s.q.hasFrames()
}

func (s *singleLink) hasRoom() bool { return !s.blocked }

// given: the peer may have the first of the link's pending bytes, which are whole frames.
func (s *singleLink) given() uint32 {
	if s.link.Pending() > 0 {
		return s.q.at.next
	}
	return s.q.written.next
}

// transmit writes frames until there are none, or the socket has no room.
func (s *singleLink) transmit() {
	q, o := s.q, &s.q.scq.out
	for s.flush() {
		o.Reset(s.in.size)
		if s.partial.Gathers() && !s.partialAlive() {
			return
		}
		s.partial.AppendTo(o)
		rest, before := o.Size(), q.at
		for o.Size() < s.link.MaxWrite() && !o.Full() && q.frame(o) {
			if q.checked {
				o.Sum()
			}
			o.Finish()
			q.scq.after[len(o.Frames())-1] = q.at
		}
		if !q.open {
			return // a local error has ended the QP
		}
		if o.Empty() {
			q.onWritten(q.at) // requests without bytes have nothing to write
			s.unblock()
			return
		}
		o.Seal()
		n, err := s.link.Write(o)
		if err != nil {
			s.writeFailed(err)
			return
		}
		if !s.onBatchWritten(n, rest, before) {
			s.block()
			return
		}
	}
}

// flush writes the link's pending bytes to the socket. It reports whether the link accepts more.
func (s *singleLink) flush() bool {
	if s.fd < 0 {
		return false
	}
	if s.link.Pending() == 0 {
		return true
	}
	progress, err := s.link.Flush()
	if err != nil {
		s.writeFailed(err)
		return false
	}
	s.keepalive.Sent = s.keepalive.Sent || progress
	if s.link.Pending() > 0 {
		s.block()
		return false
	}
	s.q.onWritten(s.q.at)
	return s.q.open
}

// onBatchWritten notes that the link has accepted n bytes of a batch that began with rest bytes of an earlier
// frame, followed by the frames from the cursor before on. It reports whether all were accepted.
func (s *singleLink) onBatchWritten(n, rest int, before cursor) (all bool) {
	q := s.q
	s.keepalive.Sent = s.keepalive.Sent || n > 0
	if n < q.scq.out.Size() {
		s.goBack(max(n, 0), rest, before)
	} else {
		all = true
		s.partial.Reset()
	}
	if s.link.Pending() > 0 {
		return false // flush continues
	}
	if s.partial.Empty() {
		q.onWritten(q.at)
	}
	return all
}

// goBack sets the cursor to the first frame of which the link has accepted nothing.
func (s *singleLink) goBack(n, rest int, before cursor) {
	q, o := s.q, &s.q.scq.out
	q.at = before
	if n < rest {
		s.partial.Advance(n)
		return
	}
	s.partial.Reset()
	begin := rest
	for i, end := range o.Frames() {
		if n == begin {
			break
		}
		if n < end {
			q.onWritten(q.at)
			q.at = q.scq.after[i]
			s.partial.Save(o, n, end)
			return
		}
		q.at = q.scq.after[i]
		begin = end
	}
}

// partialAlive reports whether the memory of a partly sent frame is still registered. If not, it ends the QP:
// the frame cannot be finished, nor another begun. The frame is the one between the two cursors.
func (s *singleLink) partialAlive() bool {
	q := s.q
	from := q.written
	if q.at.response != from.response || q.at.responseOff != from.responseOff {
		return q.answer.alive(from.response, from.responseOff)
	}
	for i := from.next; ; i++ {
		if w := q.SQ.At(i); w.Total > from.off && !w.Asks() {
			if !w.Alive() {
				q.RegionGone(w)
				return false
			}
			return true
		}
	}
}

// writeFailed ends the queue pair because its connection can no longer be written. It first reads what the
// peer sent before: a Terminate gives the reason.
func (s *singleLink) writeFailed(err error) {
	for range readRestPasses {
		if s.fd < 0 || !s.read() {
			break
		}
	}
	s.q.Fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
}

// readRestPasses is how many times a broken connection is read: enough for more than a socket usually holds.
const readRestPasses = 16 << 20 / stagingSize / readsAPass

// read places received data, if any.
func (s *singleLink) read() (came bool) {
	n, err := s.receive()
	switch {
	case err == nil:
		return n > 0
	case errors.Is(err, io.EOF):
		// This is an error even after the peer's Close: until the peer has our Close too, it keeps the
		// connection open, and answers our Reads.
		s.q.Fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, errEnded), transport.StatusFatal)
	default:
		s.q.ReceiveFailed(err)
	}
	return true
}

// errEnded is the end of a stream before both sides have closed.
var errEnded = fmt.Errorf("the connection ended: %w", io.ErrUnexpectedEOF)

func (s *singleLink) begin(header []byte) error {
	q := s.q
	if q.checked {
		if err := frame.CheckHeader(header, frame.HeaderSize); err != nil {
			return err
		}
		s.in.sum = 0
	}
	h, err := frame.Parse(header)
	if err != nil {
		return err
	}
	s.in.begun(frame.LaneHeader{Header: h})
	if q.PeerEnd() && !mayFollowClose(h.Op) {
		return fmt.Errorf("%w: %v after Close", transport.ErrProtocol, h.Op)
	}
	if q.awaitingFirstFrame {
		q.awaitingFirstFrame = false // any frame shows that the peer is in RDMA mode
		if h.Op != frame.Ready {
			return fmt.Errorf("%w: %v where Ready must come first", transport.ErrProtocol, h.Op)
		}
		return nil
	}
	if h.Op == frame.Ready {
		return fmt.Errorf("%w: Ready a second time, or from the responder", transport.ErrProtocol)
	}
	return frameKinds[h.Op].begin(q, &s.in)
}

func (s *singleLink) misplaced(err error) error { return err }

func (s *singleLink) holdsTail() bool { return false }

func (s *singleLink) end() error { return frameKinds[s.in.Op].end(s.q, &s.in) }

func (s *singleLink) tick(ticks int, counts bool) {
	q := s.q
	if q.dev.opts.reconnects() && ticks%(maxMissedOverLanes/keepalive.MaxMissed) != 0 {
		return
	}
	running := s.keepalive.Missed > 0 && !s.keepalive.Received && s.peerRuns()
	if !s.keepalive.Received || !s.keepalive.Sent {
		// received data counts even if no pass has read it, and sending anything is a sign of life
		s.drive()
	}
	say, lost := s.keepalive.Tick(counts)
	switch {
	case !q.open:
	case lost && !running:
		q.Fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, queuepair.ErrSilent,
			q.dev.opts.PeerTimeout), transport.StatusFatal)
	case say:
		s.sendAlive()
	}
}

// sendAlive sends an Alive frame if it can be sent now. If not it is not needed: the socket is full of data
// for the peer.
func (s *singleLink) sendAlive() {
	q := s.q
	if q.awaitingFirstFrame || !q.at.greeted || s.blocked || !s.partial.Empty() {
		return
	}
	b := frame.Append(make([]byte, 0, frame.HeaderSize+frame.SumSize),
		frame.Header{Op: frame.Alive, Flags: frame.Last}, nil, q.checked)
	n, err := s.link.WriteFrame(b)
	if err != nil {
		s.writeFailed(err)
		return
	}
	s.keepRest(b, n)
	if s.link.Pending() > 0 {
		s.block()
	}
}

func (s *singleLink) sendTerminate(h frame.Header, text []byte) {
	if !s.partial.Empty() || s.q.awaitingFirstFrame {
		return // a frame is half-written, or the peer may still be in streaming mode
	}
	var b []byte
	if !s.q.at.greeted {
		b = frame.Append(b, frame.Header{Op: frame.Ready, Flags: frame.Last}, nil, s.q.checked)
	}
	s.link.WriteFrame(frame.Append(b, h, text, s.q.checked))
	link.Drain(s.fd)
}

func (s *singleLink) watch(c *cq) {
	if err := c.watchConn(&s.conn); err != nil {
		s.q.Fail(fmt.Errorf("watching the connection: %w", err), transport.StatusFatal)
	}
}

func (s *singleLink) unwatch(c *cq) { c.unwatchConn(&s.conn) }

// close closes the connection. After an orderly end, the peer must still receive this side's last bytes.
func (s *singleLink) close() {
	if d := s.q.dev; s.q.State() == transport.StateClosed {
		link.CloseWhenSent(s.fd, d.opts.PeerTimeout, d.closing.Go)
	} else {
		sys.CloseFD(s.fd)
	}
	s.fd = -1
}

func (s *singleLink) acknowledgeClose()              {}
func (s *singleLink) refused(transport.Status)       {}
func (s *singleLink) laneStats() transport.LaneStats { return transport.LaneStats{} }

func (s *singleLink) openLanes(to []transport.LaneAttr) []transport.LaneAttr { return to }
