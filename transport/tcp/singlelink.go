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

// singleLink carries a queue pair over one connection. Its loss is that of the peer.
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

// start drives the queue pair once: what came after the handshake may be in a session already, and then no
// poller tells of it.
func (l *singleLink) start() { l.drive() }

func (l *singleLink) drive() bool {
	if l.hasOutput() {
		l.transmit()
	}
	if l.fd < 0 {
		return false
	}
	came := l.read()
	if came && l.fd >= 0 && l.hasOutput() {
		l.transmit()
	}
	return came
}

func (l *singleLink) hasOutput() bool {
	return !l.partial.Empty() || l.link.Pending() > 0 || l.q.hasFrames()
}

func (l *singleLink) hasRoom() bool { return !l.blocked }

// transmit writes frames until there are none, or the socket has no room.
func (l *singleLink) transmit() {
	q, o := l.q, &l.q.scq.out
	for l.flush() {
		o.Reset(l.in.size)
		if l.partial.Gathers() && !l.partialAlive() {
			return
		}
		l.partial.AppendTo(o)
		rest, before := o.Size(), q.at
		for o.Size() < l.link.MaxWrite() && !o.Full() && q.frame(o) {
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
			q.onWritten(q.at) // requests of no bytes have nothing to write
			l.unblock()
			return
		}
		o.Seal()
		n, err := l.link.Write(o)
		if err != nil {
			l.writeFailed(err)
			return
		}
		if !l.onBatchWritten(n, rest, before) {
			l.block()
			return
		}
	}
}

// flush gives the socket what the link has taken before. It tells whether the link takes more.
func (l *singleLink) flush() bool {
	if l.fd < 0 {
		return false
	}
	if l.link.Pending() == 0 {
		return true
	}
	progress, err := l.link.Flush()
	if err != nil {
		l.writeFailed(err)
		return false
	}
	l.keepalive.Sent = l.keepalive.Sent || progress
	if l.link.Pending() > 0 {
		l.block()
		return false
	}
	l.q.onWritten(l.q.at)
	return l.q.open
}

// onBatchWritten notes that the link has taken n bytes of a batch that began with the rest of an earlier
// frame and with the frames from a cursor on. It tells whether the socket has taken all of them.
func (l *singleLink) onBatchWritten(n, rest int, before cursor) (all bool) {
	q := l.q
	l.keepalive.Sent = l.keepalive.Sent || n > 0
	if n < q.scq.out.Size() {
		l.goBack(max(n, 0), rest, before)
	} else {
		all = true
		l.partial.Reset()
	}
	if l.link.Pending() > 0 {
		return false // flush goes on
	}
	if l.partial.Empty() {
		q.onWritten(q.at)
	}
	return all
}

// goBack sets the cursor to the first frame of which the link has taken nothing.
func (l *singleLink) goBack(n, rest int, before cursor) {
	q, o := l.q, &l.q.scq.out
	q.at = before
	if n < rest {
		l.partial.Advance(n)
		return
	}
	l.partial.Reset()
	begin := rest
	for i, end := range o.Frames() {
		if n == begin {
			break
		}
		if n < end {
			q.onWritten(q.at)
			q.at = q.scq.after[i]
			l.partial.Save(o, n, end)
			return
		}
		q.at = q.scq.after[i]
		begin = end
	}
}

// partialAlive tells whether the memory that the rest of a frame lies in is still registered. If not, it ends
// the QP: the frame cannot be finished, nor another begun. The frame is the one between the two cursors.
func (l *singleLink) partialAlive() bool {
	q := l.q
	from := q.written
	if q.at.response != from.response || q.at.responseOff != from.responseOff {
		return q.responseAlive(from.response, from.responseOff)
	}
	for i := from.next; ; i++ {
		if w := q.SQ.At(i); w.Total > from.off && !w.Asks() {
			if !w.Alive() {
				q.regionGone(w)
				return false
			}
			return true
		}
	}
}

// writeFailed ends the queue pair over a connection that takes nothing any more. What the peer sent before is
// read first: a Terminate tells why.
func (l *singleLink) writeFailed(err error) {
	for range readRestPasses {
		if l.fd < 0 || !l.read() {
			break
		}
	}
	l.q.Fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
}

// readRestPasses is how many times a broken connection is read: more than a socket usually holds.
const readRestPasses = 16 << 20 / stagingSize / readsAPass

// read places what has come, if anything has.
func (l *singleLink) read() (came bool) {
	n, err := l.receive()
	switch {
	case err == nil:
		return n > 0
	case errors.Is(err, io.EOF):
		// Even after the peer's Close: it stays for ours, and for the Reads that it answers, until both have
		// closed.
		l.q.Fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, errEnded), transport.StatusFatal)
	default:
		l.q.ReceiveFailed(err)
	}
	return true
}

// errEnded is the end of a stream before both sides have closed.
var errEnded = fmt.Errorf("the connection ended: %w", io.ErrUnexpectedEOF)

func (l *singleLink) begin(header []byte) error {
	q := l.q
	if q.checked {
		if err := frame.CheckHeader(header, frame.HeaderSize); err != nil {
			return err
		}
		l.in.sum = 0
	}
	h, err := frame.Parse(header)
	if err != nil {
		return err
	}
	l.in.begun(frame.LaneHeader{Header: h})
	if q.PeerEnd() && !mayFollowClose(h.Op) {
		return fmt.Errorf("%w: %v after Close", transport.ErrProtocol, h.Op)
	}
	if q.awaitingFirstFrame {
		q.awaitingFirstFrame = false // whatever frame it is, the peer is in RDMA mode
		if h.Op != frame.Ready {
			return fmt.Errorf("%w: %v where Ready must come first", transport.ErrProtocol, h.Op)
		}
		return nil
	}
	if h.Op == frame.Ready {
		return fmt.Errorf("%w: Ready a second time, or from the responder", transport.ErrProtocol)
	}
	return frameKinds[h.Op].begin(q, &l.in)
}

func (l *singleLink) misplaced(err error) error { return err }

func (l *singleLink) holdsTail() bool { return false }

func (l *singleLink) end() error { return frameKinds[l.in.Op].end(l.q, &l.in) }

func (l *singleLink) tick(ticks int, counts bool) {
	q := l.q
	if q.dev.opts.keeps() && ticks%(maxMissedOverLanes/keepalive.MaxMissed) != 0 {
		return
	}
	running := l.keepalive.Missed > 0 && !l.keepalive.Received && l.peerRuns()
	if !l.keepalive.Received || !l.keepalive.Sent {
		// what has come is heard, even if no pass has looked at it, and what can be sent says enough
		l.drive()
	}
	say, lost := l.keepalive.Tick(counts)
	switch {
	case !q.open:
	case lost && !running:
		q.Fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, queuepair.ErrSilent,
			q.dev.opts.PeerTimeout),
			transport.StatusFatal)
	case say:
		l.sendAlive()
	}
}

// sendAlive sends an Alive frame if one can stand here. If not, there is no need: what the socket is full of
// is on its way to the peer.
func (l *singleLink) sendAlive() {
	q := l.q
	if q.awaitingFirstFrame || !q.at.greeted || l.blocked || !l.partial.Empty() {
		return
	}
	b := frame.Append(make([]byte, 0, frame.HeaderSize+frame.SumSize),
		frame.Header{Op: frame.Alive, Flags: frame.Last}, nil, q.checked)
	n, err := l.link.WriteFrame(b)
	if err != nil {
		l.writeFailed(err)
		return
	}
	l.keepRest(b, n)
	if l.link.Pending() > 0 {
		l.block()
	}
}

func (l *singleLink) sendTerminate(h frame.Header, text []byte) {
	if !l.partial.Empty() || l.q.awaitingFirstFrame {
		return // a frame is half-written, or the peer may be in streaming mode yet
	}
	var b []byte
	if !l.q.at.greeted {
		b = frame.Append(b, frame.Header{Op: frame.Ready, Flags: frame.Last}, nil, l.q.checked)
	}
	l.link.WriteFrame(frame.Append(b, h, text, l.q.checked))
	link.Drain(l.fd)
}

func (l *singleLink) watch(c *cq) {
	if err := c.watchConn(&l.conn); err != nil {
		l.q.Fail(fmt.Errorf("watching the connection: %w", err), transport.StatusFatal)
	}
}

func (l *singleLink) unwatch(c *cq) { c.unwatchConn(&l.conn) }

func (l *singleLink) close() {
	sys.CloseFD(l.fd)
	l.fd = -1
}

func (l *singleLink) acknowledgeClose()                  {}
func (l *singleLink) refused(transport.Status)           {}
func (l *singleLink) laneStats() (s transport.LaneStats) { return s }

func (l *singleLink) openLanes(to []transport.LaneAttr) []transport.LaneAttr { return to }
