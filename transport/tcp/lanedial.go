package tcp

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// tokenSize is how long the name of a queue pair is, that who joins a further lane to it has to know.
const tokenSize = 16

// roleToken is what the name of a queue pair is made with, of the handshake of its first connection.
const roleToken role = "lanes"

// token names the queue pair that this handshake makes, to both its ends and to nobody else.
func (p *parties) token(secret *[32]byte) (t [tokenSize]byte) {
	copy(t[:], p.proof(secret, roleToken, nil))
	return t
}

// maxInterfaces is how many addresses a device can have for its lanes.
const maxInterfaces = 3

func (o *Options) checkLanes() error {
	if o.Lanes < 0 || o.Lanes > maxLanes {
		return fmt.Errorf("%d lanes: 1 to %d are possible", o.Lanes, maxLanes)
	}
	if len(o.Interfaces) > maxInterfaces {
		return fmt.Errorf("%d addresses for lanes: at most %d are possible", len(o.Interfaces), maxInterfaces)
	}
	for _, a := range o.Interfaces {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("the address %v for lanes: not one of an interface", a)
		}
	}
	return nil
}

// keeps tells whether queue pairs may outlive their connections.
func (o *Options) keeps() bool { return o.Lanes > 1 || o.Reconnect }

// local is the address that a lane is made from; nil for the system's choice.
func (o *Options) local(slot int) net.Addr {
	if len(o.Interfaces) == 0 {
		return nil
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Interfaces[slot%len(o.Interfaces)], 0))
}

// routes are where a queue pair's further lanes go.
type routes struct {
	// the address that the first connection was made to; none at the end that was called
	dialed string
	listed []netip.AddrPort // that the peer has told of
}

func (r *routes) to(slot int) string {
	if len(r.listed) > 1 || r.dialed == "" && len(r.listed) > 0 {
		return r.listed[slot%len(r.listed)].String()
	}
	return r.dialed
}

// arrival is news for a queue pair from the endpoint: a lane, or that none will come.
type arrival struct {
	b    *multiLane
	lane *laneConn
	err  error
}

// arrive gives it to the queue's driver. It may be called from any goroutine.
func (c *cq) arrive(a arrival) {
	c.inbox.Lock()
	gone := c.inbox.closed
	if !gone {
		c.inbox.lanes = append(c.inbox.lanes, a)
		c.arrivals.Store(true)
		c.Wake() // with the lock held: the queue is not closed meanwhile
	}
	c.inbox.Unlock()
	if gone {
		a.drop()
	}
}

func (a *arrival) drop() {
	if a.lane != nil {
		sys.CloseFD(a.lane.fd)
	}
}

// take is the driver's part.
func (a *arrival) take() {
	if a.lane != nil {
		a.b.attach(a.lane)
	} else {
		a.b.noLaneComes(a.err)
	}
}

// dialMissing has the endpoint make the lanes that are missing. Who began the queue pair makes them; the
// other end only if it has none left.
func (b *multiLane) dialMissing() {
	q := b.q
	if !q.open || b.terminate != nil || q.PeerEnd() && len(b.conns) > 0 {
		return
	}
	limit := b.maxLanes
	if !b.initiator {
		limit = 1
	}
	have := len(b.conns)
	for _, m := range b.dialing {
		if m {
			have++
		}
	}
	for slot := 0; slot < limit && have < limit; slot++ {
		if b.dialing[slot] || b.holds(slot) {
			continue
		}
		b.dialing[slot] = true
		have++
		q.dev.end.keepLane(b, slot)
	}
}

func (b *multiLane) holds(slot int) bool {
	for _, l := range b.conns {
		if l.slot == slot {
			return true
		}
	}
	return false
}

// laneNumber is a number that this side has not used: odd ones are of who began the queue pair.
func (b *multiLane) laneNumber() uint16 {
	for {
		if n := uint16(b.lastNumber.Add(2)); n != 0 {
			return n
		}
	}
}

const (
	lanePause    = 5 * time.Millisecond // before a lane is tried again; it doubles
	maxLanePause = 500 * time.Millisecond
	noLanePause  = 50 * time.Millisecond // at most, while there is no lane at all
)

// keepLane makes a lane, and tries until it is there or the queue pair has ended.
func (e *endpoint) keepLane(b *multiLane, slot int) {
	ctx, done, err := e.table.Begin(b.ctx)
	if err != nil {
		b.q.rcq.arrive(arrival{b: b, err: err})
		return
	}
	go func() {
		defer done()
		for pause := lanePause; ; pause = min(2*pause, maxLanePause) {
			err := e.join(ctx, b, slot)
			if err == nil {
				return
			}
			alone := time.Duration(b.noLaneSince.Load())
			switch {
			case ctx.Err() != nil && e.table.Context().Err() != nil:
				b.q.rcq.arrive(arrival{b: b, err: transport.ErrDeviceGone})
				return
			case ctx.Err() != nil:
				return
			case errors.Is(err, handshake.ErrGone), errors.Is(err, syscall.ECONNREFUSED), alone != 0 &&
				b.now()-alone > e.dev.opts.PeerTimeout:
				b.q.rcq.arrive(arrival{b: b, err: err}) // it counts only if there is no lane
			}
			if alone != 0 {
				pause = min(pause, noLanePause)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}()
}

// join makes one more connection and joins it to a queue pair.
func (e *endpoint) join(ctx context.Context, b *multiLane, slot int) error {
	d := net.Dialer{LocalAddr: e.dev.opts.local(slot), Timeout: e.dev.opts.PeerTimeout}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", b.routes.to(slot))
	if err != nil {
		return err
	}
	defer conn.Close()
	s := newStream(conn)
	defer s.until(ctx, e.dev.opts.PeerTimeout)()
	p, err := e.introduce(s, b.q.Attr.Peer, b.laneNumber())
	if err != nil {
		return vanished(err)
	}
	request := p.appendRequest(p.appendProof(nil, &e.id.Secret), &e.id.Secret, e.laneParameters(b, s),
		b.token[:])
	if _, err := s.Write(request); err != nil {
		return vanished(err)
	}
	body, err := expect(s, typeAccept)
	if err != nil {
		return vanished(err)
	}
	if _, _, err := p.takeAccept(body, &e.id.Secret); err != nil {
		return err
	}
	return e.joined(s, b, &laneConn{b: b, number: p.lane, slot: slot})
}

// laneParameters are what this end says of itself for one more lane.
func (e *endpoint) laneParameters(b *multiLane, s *stream) parameters {
	return e.parameters(b.q.Attr.QPConfig, s)
}

// acceptLane takes a lane that a proven peer joins to a queue pair.
func (e *endpoint) acceptLane(s *stream, p *parties, token []byte) error {
	q, state, _ := e.table.Current(p.initiator)
	var b *multiLane
	if q != nil {
		b, _ = q.sequencer.(*multiLane)
	}
	early := state == cm.Accepting || state == cm.Dialing || state == cm.Committing
	if b == nil && early {
		s.reject(handshake.RejectBusy, "the queue pair is being made")
		return cm.ErrCollision
	}
	known := b != nil && hmac.Equal(b.token[:], token) && (p.lane%2 == 1) != b.initiator
	if known && b.ended.Load() {
		if last := b.lastFrame.Load(); last != nil {
			return e.repeatTerminate(s, p, b, last)
		}
	}
	if !known || b.ended.Load() {
		s.reject(handshake.RejectGone, "the queue pair is not there any more")
		return handshake.ErrGone
	}
	if _, err := s.Write(p.appendAccept(nil, &e.id.Secret, e.laneParameters(b, s), nil)); err != nil {
		return err
	}
	return e.joined(s, b, &laneConn{b: b, number: p.lane, slot: -1, greeted: true, awaitingFirstFrame: true})
}

// joined hands a lane over.
func (e *endpoint) joined(s *stream, b *multiLane, l *laneConn) error {
	fd, err := s.detach()
	if err != nil {
		return err
	}
	if sameMachine(s.LocalAddr(), s.RemoteAddr()) {
		sys.SkipCongestionControl(fd)
	}
	l.connect(fd, s.session)
	b.q.rcq.arrive(arrival{b: b, lane: l})
	return nil
}
