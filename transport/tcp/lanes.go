package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/lane"
)

// laneMost is how many lanes a queue pair can have.
const laneMost = 16

// spareLanes may come beyond the number that was agreed on: of those that went, one end may not have noticed.
const spareLanes = laneMost

// manyFDs is the fd of a queue pair over lanes while it is connected: each lane has its own.
const manyFDs = 1 << 30

// bundle is what a queue pair has that is carried by lanes: several connections, of which each may be lost and made anew. A queue pair of
// one connection that is not kept alive has none, and nothing of this.
type bundle struct {
	q         *qp
	cqs       []*cq // of the queue pair, each once
	initiator bool
	token     [tokenSize]byte
	most      int // lanes
	links     []*link
	losses    lane.Losses
	stats     transport.LaneStats // but for what the links and the holes tell
	shown     transport.LaneStats // as the device knows it

	// Sending: see lanesend.go.
	out   *lane.Outbound[segment]
	at    place // what the cursor of the queue pair does not know of the place
	items []item
	frame []byte // one that does not count
	told  uint64 // the acknowledgement that went out last

	// Receiving: see lanereceive.go.
	in      *lane.Inbound[heldTail]
	recvs   []arrived // particulars of what fills posted Recvs; by number
	rung    uint64    // Reads and Atomics of the peer whose doorbell has rung
	fault   fault     // what is wrong, and is due when its turn comes
	ending  *ending   // the peer's Terminate, which waits for its turn
	fresh   int       // bytes that have come since the acknowledgement that went out last
	urgent  bool      // a message has: its receiver may look no more, and its sender waits
	pulse   pulse     // of all lanes together
	started time.Time

	// Making lanes: see lanejoin.go.
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	routes routes
	over   atomic.Bool   // the queue pair has ended
	last   atomic.Uint32 // number of the lane that this side made last
	alone  atomic.Int64  // since when there is no lane, in ns of started; 0: there is one
	making [laneMost]bool
}

// laneUnsent is how much the socket of a lane takes beyond what it can send. Its buffer would take megabytes: a slow lane would be given as much
// as a fast one, and all would wait for it.
const laneUnsent = 512 << 10

// link is one lane: a connection of its own.
type link struct {
	b      *bundle
	number uint16 // its name between the two ends, never used twice at a time: the epoch of what it carries
	slot   int    // which of the lanes it is, for the interface that it uses
	fd     int    // -1 once it is closed
	secure *secure

	greeted bool // Ready is behind, or not ours to send
	quiet   bool // nothing has come yet at the end that was called: it sends nothing
	carry   carry
	partial uint64 // the number of the frame that carry is the rest of; 0: none that counts
	blocked bool   // the socket has no room; the pollers watch for it
	pulse   pulse
	idle    uint8 // passes in which nothing came
	in      arriving
}

func (b *bundle) now() time.Duration { return time.Since(b.started) }

// newBundle makes a queue pair one over lanes. Its first lane is the connection that it was made of.
func newBundle(q *qp, initiator bool, token [tokenSize]byte, routes routes, s *secure) *bundle {
	b := &bundle{
		q: q, initiator: initiator, token: token, most: q.agreed.lanes, routes: routes, pulse: newPulse(), started: time.Now(),
		out: lane.NewOutbound[segment](), told: 1,
	}
	b.cqs = append(b.cqs, q.scq)
	if q.rcq != q.scq {
		b.cqs = append(b.cqs, q.rcq)
	}
	b.in = lane.NewInbound[heldTail](b.now)
	size := 1
	for size < q.conf.RecvWR {
		size *= 2
	}
	b.recvs = make([]arrived, size)
	if initiator {
		b.last.Store(^uint32(0)) // the next is 1
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	first := &link{b: b, fd: q.fd, secure: s, greeted: !initiator, quiet: !initiator, pulse: newPulse()}
	first.in.size = laneHeaderSizeWith(q.checked)
	sys.LimitUnsent(first.fd, laneUnsent)
	b.links = append(b.links, first)
	q.fd, q.at.greeted, q.written.greeted = manyFDs, true, true
	q.lanes = b
	return b
}

func laneHeaderSizeWith(checked bool) int { return headerSizeWith(checked) + laneWords }

// attach takes in a lane that has come.
func (b *bundle) attach(l *link) {
	q := b.q
	if l.slot >= 0 {
		b.making[l.slot] = false
	}
	if b.over.Load() || b.losses.Knows(l.number) || b.find(l.number) != nil || len(b.links) >= b.most+spareLanes ||
		b.losses.Len() >= lanesLostMost {
		sys.CloseFD(l.fd) // where the queue pair goes on, another takes its place
		b.restore()
		return
	}
	b.links = append(b.links, l)
	b.alone.Store(0)
	b.stats.Up++
	for _, c := range b.cqs {
		c.watchLane(l)
	}
	q.transmit()
	if q.fd >= 0 && l.fd >= 0 && l.secure != nil {
		l.receive() // what came behind start-up may be here already, and then no poller tells of it
	}
}

func (b *bundle) find(number uint16) *link {
	for _, l := range b.links {
		if l.number == number {
			return l
		}
	}
	return nil
}

// lose takes a lane off: the connection, not the queue pair, has failed. From here on nothing that it brings is placed. The peer is told,
// and what it carried is sent again when the peer has told the same.
func (b *bundle) lose(l *link, cause error) {
	if l.fd < 0 {
		return
	}
	q := b.q
	l.forget()
	b.closeLink(l)
	b.links = slices.DeleteFunc(b.links, func(o *link) bool { return o == l })
	b.losses.Closed(l.number)
	b.stats.Down++
	q.dev.opts.Log.Warn("a lane is lost", "rank", q.peer, "address", q.remote, "lane", l.number, "left", len(b.links),
		"cause", cause)
	if len(b.links) > 0 {
		b.restore()
		return
	}
	if b.ending != nil {
		b.end()
		return
	}
	b.alone.Store(max(1, int64(b.now())))
	b.restore()
}

func (b *bundle) closeLink(l *link) {
	for _, c := range b.cqs {
		c.unwatchLane(l)
	}
	sys.CloseFD(l.fd)
	l.fd = -1
}

// gone takes the news that no lane will come: the peer does not know the queue pair any more, or nobody listens there, or the time is over.
func (b *bundle) gone(cause error) {
	q := b.q
	if q.fd < 0 || len(b.links) > 0 {
		return
	}
	if q.peerEnd && q.written.next == q.sq.tail && q.at.ended {
		// All that it can have missed is that we have its Close, and it has ended in order: so do we.
		q.closing = closeSent
		q.maybeClosed()
		return
	}
	q.fail(fmt.Errorf("%w: all lanes are lost, and none could be made anew: %w", transport.ErrPeerLost, cause), transport.StatusFatal)
}

// disconnect closes all lanes; nothing is placed any more.
func (b *bundle) disconnect() {
	b.over.Store(true)
	b.cancel()
	for _, l := range b.links {
		b.closeLink(l)
	}
	b.links = b.links[:0]
	b.in.Stats.Open = 0
	b.publish()
}

// drive is one pass over the lanes.
func (b *bundle) drive() (came bool) {
	q := b.q
	b.retry()
	if q.fd >= 0 && b.hasOutput() {
		b.transmit()
	}
	for i := 0; q.fd >= 0 && i < len(b.links); {
		l := b.links[i]
		if (i == 0 || b.looks(l)) && l.receive() {
			came, l.idle = true, 0
		}
		if i < len(b.links) && b.links[i] == l {
			i++
		}
	}
	if q.fd >= 0 && b.hasFrames() {
		b.transmit()
	}
	if q.fd >= 0 && b.owes() > 0 && (b.urgent || b.owes() >= ackFrames || b.fresh >= ackBytes) {
		b.acknowledge()
	}
	b.publish()
	return came
}

// looksAfter is how many passes a lane may bring nothing before it is looked at in one of looksEach only.
const (
	looksAfter = 32
	looksEach  = 8
)

// looks tells whether a pass reads a lane that is not the first: one that has long brought nothing is read now and then, so that small
// messages on another one do not wait for it. Where something is missing, or somebody sleeps, all are.
func (b *bundle) looks(l *link) bool {
	if l.idle++; l.idle < looksAfter || b.in.Stats.Open > 0 || b.q.rcq.arming.on {
		l.idle = min(l.idle, looksAfter)
		return true
	}
	if l.idle < looksAfter+looksEach {
		return false
	}
	l.idle = looksAfter
	return true
}

// tick tells the peer on each lane that this end lives. A lane that is silent while others are not is lost, and so are all when all are, so
// that new ones can show that the peer lives; the peer is when nothing has come over any for the device's timeout. That a lane can
// be made is no sign of life: the peer's endpoint answers by itself.
func (b *bundle) tick(counts bool) {
	q := b.q
	b.drive()
	if q.fd < 0 {
		return
	}
	b.pulse.tick(counts)
	if b.pulse.silent >= ticksSilentLanes {
		q.fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, errSilent, q.dev.opts.PeerTimeout), transport.StatusFatal)
		return
	}
	for _, l := range slices.Clone(b.links) {
		say, _ := l.pulse.tick(counts)
		switch {
		case l.fd < 0:
		case l.pulse.silent >= ticksSilentAll,
			l.pulse.silent >= ticksSilentLane && b.pulse.silent < ticksSilentLane/2:
			b.lose(l, errSilent)
		case say:
			l.sayAlive()
		}
	}
}

// Silence over lanes, in ticks, of which there are ticksSilentLanes in the timeout of a peer.
const (
	ticksSilentLanes = 16
	ticksSilentLane  = 6 // of one of several
	ticksSilentAll   = 8 // of all
)

// failed sorts what went wrong with a lane: the lane alone, or a rule of the protocol, which ends the queue pair.
func (l *link) failed(err error) {
	q := l.b.q
	var v *violation
	switch {
	case errors.As(err, &v) && v.code == terminateChecksum:
		l.b.lose(l, err)
	case v != nil, errors.Is(err, errTerminated), errors.Is(err, transport.ErrProtocol), errors.Is(err, transport.ErrAccess):
		q.receiveFailed(err)
	default:
		l.b.lose(l, err)
	}
}

var errEnded = fmt.Errorf("the connection ended: %w", io.ErrUnexpectedEOF)
