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
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// maxInterfaces is how many addresses a device can have for its lanes.
const maxInterfaces = 3

func (o *Options) checkLanes() error {
	if o.Lanes < 0 || o.Lanes > message.MaxLanes {
		return fmt.Errorf("%d lanes: 1 to %d are possible", o.Lanes, message.MaxLanes)
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

// handOverLane gives a lane to the queue pair's driver. It may be called from any goroutine.
func (b *multiLane) handOverLane(l *laneConn) {
	b.q.rcq.HandOver(queuepair.Arrival{
		Enter: func() { b.attach(l) },
		Drop:  func() { sys.CloseFD(l.fd) },
	})
}

// handOverFailure tells the queue pair's driver that no lane comes. It may be called from any goroutine.
func (b *multiLane) handOverFailure(err error) {
	b.q.rcq.HandOver(queuepair.Arrival{Enter: func() { b.noLaneComes(err) }})
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
		b.handOverFailure(err)
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
				b.handOverFailure(transport.ErrDeviceGone)
				return
			case ctx.Err() != nil:
				return
			case errors.Is(err, handshake.ErrGone), errors.Is(err, syscall.ECONNREFUSED), alone != 0 &&
				b.now()-alone > e.dev.opts.PeerTimeout:
				b.handOverFailure(err) // it counts only if there is no lane
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
	h := setup.New(&e.local, conn)
	defer h.Until(ctx, e.dev.opts.PeerTimeout)()
	number := b.laneNumber()
	if err := h.Introduce(b.q.Attr.Peer, number); err != nil {
		return setup.Vanished(err)
	}
	if err := h.Request(e.offer(b.q.Attr.QPConfig, h), b.token[:]); err != nil {
		return setup.Vanished(err)
	}
	if _, _, err := h.Answer(); err != nil {
		return setup.Vanished(err)
	}
	return e.joined(h, b, &laneConn{b: b, number: number, slot: slot})
}

// acceptLane takes a lane that a proven peer joins to a queue pair.
func (e *endpoint) acceptLane(h *setup.Handshake, token []byte) error {
	q, state, _ := e.table.Current(h.Peer())
	var b *multiLane
	if q != nil {
		b, _ = q.sequencer.(*multiLane)
	}
	early := state == cm.Accepting || state == cm.Dialing || state == cm.Committing
	if b == nil && early {
		h.Reject(handshake.RejectBusy, "the queue pair is being made")
		return cm.ErrCollision
	}
	number := h.Lane()
	known := b != nil && hmac.Equal(b.token[:], token) && (number%2 == 1) != b.initiator
	if known && b.ended.Load() {
		if last := b.lastFrame.Load(); last != nil {
			return e.repeatTerminate(h, b, last)
		}
	}
	if !known || b.ended.Load() {
		h.Reject(handshake.RejectGone, "the queue pair is not there any more")
		return handshake.ErrGone
	}
	if err := h.Accept(e.offer(b.q.Attr.QPConfig, h), nil); err != nil {
		return err
	}
	return e.joined(h, b, &laneConn{b: b, number: number, slot: -1, greeted: true, awaitingFirstFrame: true})
}

// joined hands a lane over.
func (e *endpoint) joined(h *setup.Handshake, b *multiLane, l *laneConn) error {
	fd, session, err := h.Detach()
	if err != nil {
		return err
	}
	l.connect(fd, session)
	b.handOverLane(l)
	return nil
}
