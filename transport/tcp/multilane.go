package tcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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

// multiLane is what a queue pair has that is carried by lanes: several connections, of which each may be lost
// and re-established. A queue pair of one connection that is not kept alive has none, and nothing of this.
type multiLane struct {
	q         *qp
	cqs       []*cq // of the queue pair, each once
	initiator bool
	token     [message.TokenSize]byte
	maxLanes  int // lanes
	conns     []*laneConn
	failover  sequence.Failover
	untold    []*lostLane         // since the latest tick
	stats     transport.LaneStats // but for what the links and the holes tell
	shown     transport.LaneStats // as the device knows it

	// Sending: see lanesend.go.
	out     *sequence.Outbound[segment]
	at      position // what the cursor of the queue pair does not know of the place
	numbers []uint64 // of the frames of the present write
	frame   []byte   // one that does not count
	ackSent uint64   // the acknowledgement that went out last

	// Receiving: see lanereceive.go.
	in           *sequence.Inbound[heldTail]
	messages     []messageProgress // particulars of what fills posted Recvs; by number
	doorbells    uint64            // Reads and Atomics of the peer whose doorbell has rung
	deferred     deferredError     // what is wrong, and is due when its turn comes
	terminate    *pendingTerminate // the peer's Terminate, which waits for its turn
	unackedBytes int               // bytes that have come since the acknowledgement that went out last
	ackUrgent    bool              // a message has: its receiver may look no more, and its sender waits
	keepalive    keepalive.State   // of all lanes together
	started      time.Time

	// Making lanes: see lanedial.go.
	ctx         context.Context // ends with the connection
	cancel      context.CancelFunc
	routes      routes
	ended       atomic.Bool               // the queue pair has ended
	lastFrame   atomic.Pointer[lastFrame] // its Terminate, if it has sent one
	lastNumber  atomic.Uint32             // number of the lane that this side made last
	noLaneSince atomic.Int64              // since when there is no lane, in ns of started; 0: there is one
	dialing     [message.MaxLanes]bool
}

// laneUnsent is how much the socket of a lane takes beyond what it can send. Its buffer would take megabytes:
// a slow lane would be given as much as a fast one, and all would wait for it.
const laneUnsent = 512 << 10

// laneConn is one lane: a connection of its own.
type laneConn struct {
	conn
	b      *multiLane
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
	q := l.b.q
	l.conn = conn{q: q, takes: l, link: link.New(fd, s), fd: fd, keepalive: keepalive.NewState()}
	l.in.size = frame.LaneHeaderSizeWith(q.checked)
	sys.LimitUnsent(fd, laneUnsent)
}

func (b *multiLane) now() time.Duration { return time.Since(b.started) }

// newMultiLane makes a queue pair one over lanes. Its first lane is the connection that it was made of.
func newMultiLane(q *qp, fd int, s *link.Session, initiator bool, token [message.TokenSize]byte,
	routes routes) *multiLane {
	b := &multiLane{
		q: q, initiator: initiator, token: token, maxLanes: q.agreed.Lanes, routes: routes,
		keepalive: keepalive.NewState(), started: time.Now(),
		out: sequence.NewOutbound[segment](), ackSent: 1,
	}
	b.cqs = append(b.cqs, q.scq)
	if q.rcq != q.scq {
		b.cqs = append(b.cqs, q.rcq)
	}
	b.in = sequence.NewInbound[heldTail](b.now)
	size := 1
	for size < q.Attr.RecvWR {
		size *= 2
	}
	b.messages = make([]messageProgress, size)
	if initiator {
		b.lastNumber.Store(^uint32(0)) // the next is 1
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	first := &laneConn{b: b, greeted: !initiator, awaitingFirstFrame: !initiator}
	first.connect(fd, s)
	b.conns = append(b.conns, first)
	q.at.greeted, q.written.greeted = true, true
	q.sequencer = b
	return b
}

// start makes the lanes that are missing, and drives the queue pair once: what came after the handshake may
// be in a session already, and then no poller tells of it.
func (b *multiLane) start() {
	b.dialMissing()
	b.drive()
}

func (b *multiLane) hasRoom() bool { return b.pick() != nil }

// attach takes in a lane that has come.
func (b *multiLane) attach(l *laneConn) {
	q := b.q
	if l.slot >= 0 {
		b.dialing[l.slot] = false
	}
	if b.ended.Load() || b.failover.Knows(l.number) || b.find(l.number) != nil ||
		len(b.conns) >= b.maxLanes+spareLanes ||
		b.failover.Len() >= frame.MaxLostLanes {
		sys.CloseFD(l.fd) // where the queue pair goes on, another takes its place
		b.dialMissing()
		return
	}
	b.conns = append(b.conns, l)
	b.noLaneSince.Store(0)
	b.stats.Up++
	for _, c := range b.cqs {
		b.watchLane(c, l)
	}
	b.transmit()
	if q.open && l.fd >= 0 {
		l.read() // what came after the handshake may be in a session already, and then no poller tells of it
	}
}

func (b *multiLane) find(number uint16) *laneConn {
	for _, l := range b.conns {
		if l.number == number {
			return l
		}
	}
	return nil
}

// lose takes a lane off: the connection, not the queue pair, has failed. From here on nothing that it brings
// is placed. The peer is told, and what it carried is sent again when the peer has told the same.
func (b *multiLane) lose(l *laneConn, cause error) {
	if l.fd < 0 {
		return
	}
	l.forget()
	b.closeLane(l)
	b.conns = slices.DeleteFunc(b.conns, func(o *laneConn) bool { return o == l })
	b.failover.Closed(l.number)
	b.stats.Down++
	b.untold = append(b.untold, &lostLane{number: l.number, left: len(b.conns), cause: cause})
	if len(b.conns) > 0 {
		b.dialMissing()
		return
	}
	if b.terminate != nil {
		b.onTerminate()
		return
	}
	b.noLaneSince.Store(max(1, int64(b.now())))
	b.dialMissing()
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
func (b *multiLane) tellLosses() {
	q := b.q
	if len(b.conns) == 0 || q.PeerEnd() {
		return
	}
	b.untold = slices.DeleteFunc(b.untold, func(l *lostLane) bool {
		if l.older {
			q.dev.opts.Log.Warn("a lane is lost", "rank", q.Attr.Peer, "address", q.Attr.Remote,
				"lane", l.number, "left", l.left, "cause", l.cause)
		}
		told := l.older
		l.older = true
		return told
	})
}

func (b *multiLane) closeLane(l *laneConn) {
	for _, c := range b.cqs {
		c.unwatchConn(&l.conn)
	}
	sys.CloseFD(l.fd)
	l.fd = -1
}

func (b *multiLane) watch(c *cq) {
	for _, l := range slices.Clone(b.conns) {
		b.watchLane(c, l)
	}
}

func (b *multiLane) watchLane(c *cq, l *laneConn) {
	if err := c.watchConn(&l.conn); err != nil {
		b.lose(l, fmt.Errorf("watching the lane: %w", err))
	}
}

func (b *multiLane) unwatch(c *cq) {
	for _, l := range b.conns {
		c.unwatchConn(&l.conn)
	}
}

// noLaneComes takes the news that no lane will come: the peer does not know the queue pair any more, or
// nobody listens there, or the time is over.
func (b *multiLane) noLaneComes(cause error) {
	q := b.q
	if !q.open || len(b.conns) > 0 {
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
func (b *multiLane) close() {
	b.ended.Store(true)
	b.cancel()
	for _, l := range b.conns {
		b.closeLane(l)
	}
	b.conns = b.conns[:0]
	b.in.Stats.Open = 0
	b.publish()
}

// drive is one pass over the lanes.
func (b *multiLane) drive() (came bool) {
	q := b.q
	b.retryBlocked()
	if q.open && b.hasOutput() {
		b.transmit()
	}
	for i := 0; q.open && i < len(b.conns); {
		l := b.conns[i]
		if (i == 0 || b.readDue(l)) && l.read() {
			came, l.idle = true, 0
		}
		if i < len(b.conns) && b.conns[i] == l {
			i++
		}
	}
	if q.open && b.hasFrames() {
		b.transmit()
	}
	if q.open && b.unackedFrames() > 0 && (b.ackUrgent || b.unackedFrames() >= ackFrames ||
		b.unackedBytes >= ackBytes) {
		b.acknowledge()
	}
	b.publish()
	return came
}

// maxIdlePolls is how many passes a lane may bring nothing before it is polled in one of idlePollEvery only.
const (
	maxIdlePolls  = 32
	idlePollEvery = 8
)

// readDue tells whether a pass reads a lane that is not the first: one that has long brought nothing is read
// now and then, so that small messages on another one do not wait for it. Where something is missing, or
// somebody sleeps, all are.
func (b *multiLane) readDue(l *laneConn) bool {
	if l.idle++; l.idle < maxIdlePolls || b.in.Stats.Open > 0 || b.q.rcq.interest.on {
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
func (b *multiLane) tick(_ int, counts bool) {
	q := b.q
	running := b.keepalive.Missed > 0 && !b.keepalive.Received &&
		slices.ContainsFunc(b.conns, func(l *laneConn) bool { return l.peerRuns() })
	b.drive()
	if !q.open {
		return
	}
	b.tellLosses()
	b.keepalive.Tick(counts)
	if b.keepalive.Missed >= maxMissedOverLanes && !running {
		q.Fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, queuepair.ErrSilent,
			q.dev.opts.PeerTimeout),
			transport.StatusFatal)
		return
	}
	for _, l := range slices.Clone(b.conns) {
		say, _ := l.keepalive.Tick(counts)
		switch {
		case l.fd < 0:
		case l.keepalive.Missed >= maxMissedOfAll && !running,
			l.keepalive.Missed >= maxMissedOfLane && b.keepalive.Missed < maxMissedOfLane/2:
			b.lose(l, queuepair.ErrSilent)
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
	q := l.b.q
	damaged := violation.Of(err) == violation.Checksum || errors.Is(err, link.ErrRecord)
	if queuepair.IsPeers(err) && !damaged {
		q.ReceiveFailed(err)
		return
	}
	l.b.lose(l, err)
}
