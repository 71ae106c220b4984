package tcp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// spareLanes may come beyond the number that was agreed on: of those that went, one end may not have noticed.
const spareLanes = message.MaxLanes

// multiLane carries a queue pair over lanes: several connections, each of which may be lost and
// re-established. It owns the lanes that there are, and their end. A queue pair of one connection that is not
// kept alive has a singleLink instead.
type multiLane struct {
	q        *qp
	cqs      []*cq // of the queue pair, each once
	conns    []*laneConn
	failover sequence.Failover
	untold   []*lostLane         // since the latest tick
	stats    transport.LaneStats // but for what the links and the holes tell
	shown    transport.LaneStats // as the device knows it

	keepalive keepalive.State // of all lanes together
	started   time.Time

	send laneSender
	recv laneReceiver
	dial laneDialer
}

// laneUnsent is how much the socket of a lane takes beyond what it can send. Its buffer would take megabytes:
// a slow lane would be given as much as a fast one, and all would wait for it.
const laneUnsent = 512 << 10

// laneConn is one lane: a connection of its own.
type laneConn struct {
	conn
	m      *multiLane
	number uint16 // its name between the two ends, never used twice at a time: the epoch of what it carries
	slot   int    // which of the lanes it is, for the interface that it uses

	greeted            bool   // Ready has been sent, or is not ours to send
	awaitingFirstFrame bool   // nothing has come yet at the end that was called: it sends nothing
	partialNumber      uint64 // the number of the frame that partial is the rest of; 0: none that counts
	idle               uint8  // passes in which nothing came
	readBytes          uint64 // that have come of answers to Reads
}

// connect gives a lane its connection, encrypted if there is a session.
func (l *laneConn) connect(fd int, s *link.Session) {
	q := l.m.q
	l.conn = conn{q: q, takes: l, link: link.New(fd, s), fd: fd, keepalive: keepalive.NewState()}
	l.in.size = frame.LaneHeaderSizeWith(q.checked)
	sys.LimitUnsent(fd, laneUnsent)
}

func (m *multiLane) now() time.Duration { return time.Since(m.started) }

// newMultiLane makes a queue pair one over lanes. Its first lane is the connection that it was made of.
func newMultiLane(q *qp, fd int, s *link.Session, initiator bool, token [message.TokenSize]byte,
	routes routes) {
	m := &multiLane{q: q, keepalive: keepalive.NewState(), started: time.Now()}
	m.cqs = append(m.cqs, q.scq)
	if q.rcq != q.scq {
		m.cqs = append(m.cqs, q.rcq)
	}
	m.send.init(m)
	m.recv.init(m)
	m.dial.init(m, initiator, token, routes)
	first := &laneConn{m: m, greeted: !initiator, awaitingFirstFrame: !initiator}
	first.connect(fd, s)
	m.conns = append(m.conns, first)
	q.at.greeted, q.written.greeted = true, true
	q.sequencer = m
}

// start makes the lanes that are missing, and drives the queue pair once: what came after the handshake may
// be in a session already, and then no poller tells of it.
func (m *multiLane) start() {
	m.dial.dialMissing()
	m.drive()
}

// hasOutput reports whether there is something that could be sent, or acknowledged.
func (m *multiLane) hasOutput() bool { return m.recv.unackedFrames() > 0 || m.send.hasFrames() }

func (m *multiLane) transmit()                       { m.send.transmit() }
func (m *multiLane) hasRoom() bool                   { return m.send.pick() != nil }
func (m *multiLane) acknowledgeClose()               { m.send.acknowledge() }
func (m *multiLane) refused(status transport.Status) { m.send.refused(m.recv.terminate.Ref, status) }

// attach takes in a lane that has come.
func (m *multiLane) attach(l *laneConn) {
	q := m.q
	if l.slot >= 0 {
		m.dial.dialing[l.slot] = false
	}
	if m.dial.ended.Load() || m.failover.Knows(l.number) || m.find(l.number) != nil ||
		len(m.conns) >= m.dial.maxLanes+spareLanes ||
		m.failover.Len() >= frame.MaxLostLanes {
		sys.CloseFD(l.fd) // where the queue pair goes on, another takes its place
		m.dial.dialMissing()
		return
	}
	m.conns = append(m.conns, l)
	m.dial.noLaneSince.Store(0)
	m.stats.Up++
	for _, c := range m.cqs {
		m.watchLane(c, l)
	}
	m.send.transmit()
	if q.open && l.fd >= 0 {
		l.read() // what came after the handshake may be in a session already, and then no poller tells of it
	}
}

func (m *multiLane) find(number uint16) *laneConn {
	for _, l := range m.conns {
		if l.number == number {
			return l
		}
	}
	return nil
}

// lose takes a lane off: the connection, not the queue pair, has failed. From here on nothing that it brings
// is placed. The peer is told, and what it carried is sent again when the peer has told the same.
func (m *multiLane) lose(l *laneConn, cause error) {
	if l.fd < 0 {
		return
	}
	l.forget()
	m.closeLane(l)
	m.conns = slices.DeleteFunc(m.conns, func(o *laneConn) bool { return o == l })
	m.failover.Closed(l.number)
	m.stats.Down++
	m.untold = append(m.untold, &lostLane{number: l.number, left: len(m.conns), cause: cause})
	if len(m.conns) > 0 {
		m.dial.dialMissing()
		return
	}
	if m.recv.terminate != nil {
		m.recv.onTerminate()
		return
	}
	m.dial.noLaneSince.Store(max(1, int64(m.now())))
	m.dial.dialMissing()
}

// lostLane is a lane that was lost, of which the user is to be told.
type lostLane struct {
	number uint16
	left   int // lanes, then
	cause  error
	older  bool // than the latest tick
}

// tellLosses tells the user, at a tick, of lanes that were lost before the tick before it. A peer that
// closes its end, or dies, ends all of its lanes, and the end of one may be seen before the Close on
// another, or before the end of the last one. So nothing is told unless the queue pair goes on, which says
// more otherwise.
func (m *multiLane) tellLosses() {
	q := m.q
	if len(m.conns) == 0 || q.PeerEnd() {
		return
	}
	m.untold = slices.DeleteFunc(m.untold, func(l *lostLane) bool {
		if l.older {
			q.dev.opts.Log.Warn("a lane is lost", "rank", q.Attr.Peer, "address", q.Attr.Remote,
				"lane", l.number, "left", l.left, "cause", l.cause)
		}
		told := l.older
		l.older = true
		return told
	})
}

func (m *multiLane) closeLane(l *laneConn) {
	for _, c := range m.cqs {
		c.unwatchConn(&l.conn)
	}
	sys.CloseFD(l.fd)
	l.fd = -1
}

func (m *multiLane) watch(c *cq) {
	for _, l := range slices.Clone(m.conns) {
		m.watchLane(c, l)
	}
}

func (m *multiLane) watchLane(c *cq, l *laneConn) {
	if err := c.watchConn(&l.conn); err != nil {
		m.lose(l, fmt.Errorf("watching the lane: %w", err))
	}
}

func (m *multiLane) unwatch(c *cq) {
	for _, l := range m.conns {
		c.unwatchConn(&l.conn)
	}
}

// noLaneComes takes the news that no lane will come: the peer does not know the queue pair any more, or
// nobody listens there, or the time is over.
func (m *multiLane) noLaneComes(cause error) {
	q := m.q
	if !q.open || len(m.conns) > 0 {
		return
	}
	if q.PeerEnd() && q.written.next == q.SQ.Tail && q.at.ended {
		// All that it can have missed is that we have its Close, and it has ended in order: so do we.
		q.CloseSent()
		return
	}
	q.Fail(fmt.Errorf("%w: all lanes are lost, and none could be re-established: %w", transport.ErrPeerLost,
		cause), transport.StatusFatal)
}

// close closes all lanes; nothing is placed any more.
func (m *multiLane) close() {
	m.dial.ended.Store(true)
	m.dial.cancel()
	for _, l := range m.conns {
		m.closeLane(l)
	}
	m.conns = m.conns[:0]
	m.recv.in.Stats.Open = 0
	m.publish()
}

// drive is one pass over the lanes.
func (m *multiLane) drive() (came bool) {
	q := m.q
	m.send.retryBlocked()
	if q.open && m.hasOutput() {
		m.send.transmit()
	}
	for i := 0; q.open && i < len(m.conns); {
		l := m.conns[i]
		if (i == 0 || m.readDue(l)) && l.read() {
			came, l.idle = true, 0
		}
		if i < len(m.conns) && m.conns[i] == l {
			i++
		}
	}
	if q.open && m.send.hasFrames() {
		m.send.transmit()
	}
	if q.open && m.recv.ackDue() {
		m.send.acknowledge()
	}
	m.publish()
	return came
}

// maxIdlePolls is how many passes a lane may bring nothing before it is polled in one of idlePollEvery only.
const (
	maxIdlePolls  = 32
	idlePollEvery = 8
)

// readDue reports whether a pass reads a lane that is not the first: one that has long brought nothing is
// read now and then, so that small messages on another one do not wait for it. Where something is missing, or
// somebody sleeps, all are.
func (m *multiLane) readDue(l *laneConn) bool {
	if l.idle++; l.idle < maxIdlePolls || m.recv.in.Stats.Open > 0 || m.q.rcq.interest.on {
		l.idle = min(l.idle, maxIdlePolls)
		return true
	}
	if l.idle < maxIdlePolls+idlePollEvery {
		return false
	}
	l.idle = maxIdlePolls
	return true
}

// tick tells the peer on each lane that this end lives. A lane that is silent while others are not is lost,
// and so are all when all are, so that new ones can show that the peer lives; the peer is when nothing has
// come over any for the device's timeout. A peer that is known to run loses neither while its lanes stand.
// That a lane can be made is no sign of life: the peer's endpoint answers by itself.
func (m *multiLane) tick(_ int, counts bool) {
	q := m.q
	running := m.keepalive.Missed > 0 && !m.keepalive.Received &&
		slices.ContainsFunc(m.conns, func(l *laneConn) bool { return l.peerRuns() })
	m.drive()
	if !q.open {
		return
	}
	m.tellLosses()
	m.keepalive.Tick(counts)
	if m.keepalive.Missed >= maxMissedOverLanes && !running {
		q.Fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, queuepair.ErrSilent,
			q.dev.opts.PeerTimeout),
			transport.StatusFatal)
		return
	}
	for _, l := range slices.Clone(m.conns) {
		say, _ := l.keepalive.Tick(counts)
		switch {
		case l.fd < 0:
		case l.keepalive.Missed >= maxMissedOfAll && !running,
			l.keepalive.Missed >= maxMissedOfLane && m.keepalive.Missed < maxMissedOfLane/2:
			m.lose(l, queuepair.ErrSilent)
		case say:
			l.sendAlive()
		}
	}
}

// Silence over lanes, in ticks, of which there are maxMissedOverLanes in the timeout of a peer.
const (
	maxMissedOverLanes = 16
	maxMissedOfLane    = 6 // of one of several
	maxMissedOfAll     = 8 // of all
)

// failed sorts what went wrong with a lane: the lane alone, or a rule of the protocol, which ends the queue
// pair.
func (l *laneConn) failed(err error) {
	q := l.m.q
	damaged := violation.Of(err) == violation.Checksum || errors.Is(err, link.ErrRecord)
	if queuepair.IsPeers(err) && !damaged {
		q.ReceiveFailed(err)
		return
	}
	l.m.lose(l, err)
}
