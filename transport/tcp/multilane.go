package tcp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
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

// spareLanes is how many lanes may exist beyond the agreed number: one end may not have noticed the loss of a
// lane yet.
const spareLanes = message.MaxLanes

// multiLane carries a queue pair over lanes: several connections, each of which may be lost and
// re-established. It owns the lanes. A queue pair with one connection that is not re-established has a
// singleLink instead.
type multiLane struct {
	q        *qp
	cqs      []*cq // of the queue pair, each once
	conns    []*laneConn
	failover sequence.Failover
	unlogged []*lostLane         // lost lanes that are not logged yet
	stats    transport.LaneStats // except open lanes and holes

	keepalive keepalive.State // of all lanes together
	started   time.Time

	send laneSender
	recv laneReceiver
	dial laneDialer
}

// laneUnsent is how many unsent bytes the socket of a lane may hold. Its buffer would hold megabytes: a slow
// lane would be given as much as a fast one, and the message would wait for it.
const laneUnsent = 512 << 10

// laneConn is one lane: a connection of its own.
type laneConn struct {
	conn
	m      *multiLane
	number uint16 // identifies the lane at both ends; not reused while frames may still arrive with it
	slot   int    // index of the lane, which selects its interface

	greeted            bool   // Ready was sent, or the peer sends it
	awaitingFirstFrame bool   // responder that has received nothing yet: it must not send
	partialNumber      uint64 // number of the partly sent frame; 0: none, or unsequenced
	idle               uint8  // consecutive passes without data
	readBytes          uint64 // received of answers to Reads
}

// connect gives a lane its connection, encrypted if there is a session.
func (l *laneConn) connect(fd int, s *link.Session) {
	q := l.m.q
	l.conn = conn{q: q, takes: l, link: link.New(fd, s), fd: fd, keepalive: keepalive.NewState()}
	l.in.size = frame.LaneHeaderSizeWith(q.checked)
	sys.LimitUnsent(fd, laneUnsent)
}

func (m *multiLane) now() time.Duration { return time.Since(m.started) }

// newMultiLane gives a queue pair lanes. The first is the connection on which it was negotiated.
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

// start dials the missing lanes, and drives the queue pair once: data after the handshake may already be in a
// TLS session, where no poller sees it.
func (m *multiLane) start() {
	m.dial.dialMissing()
	m.drive()
}

// hasOutput reports whether there is something to send or to acknowledge.
func (m *multiLane) hasOutput() bool { return m.recv.unackedFrames() > 0 || m.send.hasFrames() }

func (m *multiLane) transmit()                       { m.send.transmit() }
func (m *multiLane) hasRoom() bool                   { return m.send.pick() != nil }
func (m *multiLane) given() uint32                   { return m.q.written.next }
func (m *multiLane) acknowledgeClose()               { m.send.acknowledge() }
func (m *multiLane) refused(status transport.Status) { m.send.refused(m.recv.terminate.Ref, status) }

// attach adds a new lane.
func (m *multiLane) attach(l *laneConn) {
	q := m.q
	if l.slot >= 0 {
		m.dial.dialing[l.slot] = false
	}
	if m.dial.ended.Load() || m.failover.Knows(l.number) || m.find(l.number) != nil ||
		len(m.conns) >= m.dial.maxLanes+spareLanes || m.failover.Len() >= frame.MaxLostLanes {
		sys.CloseFD(l.fd) // if the queue pair is open, another lane is dialed
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
		l.read() // data may already be in a TLS session, where no poller sees it
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

// lose closes a lane whose connection, not the queue pair, has failed. Nothing that arrives over it later is
// placed. The peer is informed, and the lane's frames are resent when the peer has reported the same.
func (m *multiLane) lose(l *laneConn, cause error) {
	if l.fd < 0 {
		return
	}
	l.forget()
	own := localIP(l.fd)
	m.closeLane(l)
	m.conns = slices.DeleteFunc(m.conns, func(o *laneConn) bool { return o == l })
	m.failover.Closed(l.number)
	m.stats.Down++
	m.unlogged = append(m.unlogged, &lostLane{number: l.number, own: own, left: len(m.conns),
		cause: cause})
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

// lostLane is a lost lane that is to be logged.
type lostLane struct {
	number uint16
	own    net.IP // its address at this end
	left   int    // remaining lanes
	cause  error
	older  bool // lost before the last tick
}

// localIP returns a connection's address at this end; nil if it is unknown.
func localIP(fd int) net.IP {
	name, _ := syscall.Getsockname(fd)
	switch a := name.(type) {
	case *syscall.SockaddrInet4:
		return a.Addr[:]
	case *syscall.SockaddrInet6:
		return a.Addr[:]
	}
	return nil
}

// interfaceOf names the interface with an address, or returns the address where none has it.
func interfaceOf(own net.IP) string {
	if own == nil {
		return "unknown"
	}
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if network, is := a.(*net.IPNet); is && network.IP.Equal(own) {
				return i.Name
			}
		}
	}
	return own.String()
}

// logLosses logs, at a tick, the lanes that were lost before the previous tick. A peer that closes its end,
// or dies, loses all its lanes one after the other, so a loss is logged only if the queue pair is still open
// later; otherwise its error is reported instead.
func (m *multiLane) logLosses() {
	q := m.q
	if len(m.conns) == 0 || q.PeerEnd() {
		return
	}
	m.unlogged = slices.DeleteFunc(m.unlogged, func(l *lostLane) bool {
		if l.older {
			q.dev.opts.Log.Warn("a lane is lost", "peer", q.Attr.Peer, "address", q.Attr.Remote,
				"interface", interfaceOf(l.own), "lane", l.number, "left", l.left, "cause", l.cause)
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

// noLaneComes handles the news that no lane can be made: the peer does not know the queue pair any more,
// nobody listens there, or the time is over.
func (m *multiLane) noLaneComes(cause error) {
	q := m.q
	if !q.open || len(m.conns) > 0 {
		return
	}
	if q.PeerEnd() && q.written.next == q.SQ.Tail && q.at.ended {
		// The peer has closed, and has all our requests. It can lack at most our Close and the
		// acknowledgement of its own, so this end ends in order too.
		q.CloseSent()
		return
	}
	q.Fail(fmt.Errorf("%w: all lanes are lost, and none could be re-established: %w", transport.ErrPeerLost,
		cause), transport.StatusFatal)
}

// close closes all lanes; nothing more is placed.
func (m *multiLane) close() {
	m.dial.ended.Store(true)
	m.dial.cancel()
	for _, l := range m.conns {
		m.closeLane(l)
	}
	m.conns = m.conns[:0]
	m.recv.in.Stats.Open = 0
}

// drive makes one pass over the lanes.
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
	return came
}

// maxIdlePolls is the number of passes without data after which a lane is read only every idlePollEvery-th
// pass.
const (
	maxIdlePolls  = 32
	idlePollEvery = 8
)

// readDue reports whether a pass reads a lane other than the first: a lane that has long been idle is read
// only now and then, so that it does not delay small messages on another one. If there are holes, or somebody
// sleeps, all are read.
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

// tick sends signs of life over the lanes. A lane that is silent while others receive data is lost. If all
// lanes are silent, all are lost, so that new ones can show that the peer is alive. The peer is lost when
// nothing arrives over any lane for PeerTimeout. Neither happens to a peer that is known to run while its
// lanes are open. A new lane alone is no sign of life: the peer's endpoint answers by itself.
func (m *multiLane) tick(_ int, counts bool) {
	q := m.q
	running := m.keepalive.Missed > 0 && !m.keepalive.Received &&
		slices.ContainsFunc(m.conns, func(l *laneConn) bool { return l.peerRuns() })
	m.drive()
	if !q.open {
		return
	}
	m.logLosses()
	m.keepalive.Tick(counts)
	if m.keepalive.Missed >= maxMissedOverLanes && !running {
		q.Fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, queuepair.ErrSilent,
			q.dev.opts.PeerTimeout), transport.StatusFatal)
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

// Ticks of silence after which a lane, all lanes, or the peer is lost. maxMissedOverLanes ticks are the peer
// timeout.
const (
	maxMissedOverLanes = 16
	maxMissedOfLane    = 6 // of one lane while others receive
	maxMissedOfAll     = 8 // of all lanes
)

// failed handles an error of a lane: either the lane alone is lost, or the peer broke a rule, which ends the
// queue pair.
func (l *laneConn) failed(err error) {
	q := l.m.q
	damaged := violation.Of(err) == violation.Checksum || errors.Is(err, link.ErrRecord)
	if queuepair.IsPeers(err) && !damaged {
		q.ReceiveFailed(err)
		return
	}
	l.m.lose(l, err)
}
