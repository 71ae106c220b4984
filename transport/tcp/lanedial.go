package tcp

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
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

// maxInterfaces is the maximum number of addresses for a device's lanes.
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

// reconnects reports whether queue pairs outlive their connections: lost ones are re-established.
func (o *Options) reconnects() bool { return o.Lanes > 1 || o.Reconnect }

// local returns the address from which a lane connects; nil for the system's choice.
func (o *Options) local(slot int) net.Addr {
	if len(o.Interfaces) == 0 {
		return nil
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Interfaces[slot%len(o.Interfaces)], 0))
}

// routes are the addresses to which a queue pair's further lanes connect.
type routes struct {
	// the address to which the first connection was made; "" at the responder
	dialed string
	listed []netip.AddrPort // that the peer listens on
}

func (r *routes) to(slot int) string {
	if len(r.listed) > 1 || r.dialed == "" && len(r.listed) > 0 {
		return r.listed[slot%len(r.listed)].String()
	}
	return r.dialed
}

// laneDialer makes the missing lanes of a queue pair. The queue pair's driver uses it, and so do the
// goroutines that dial and accept lanes.
type laneDialer struct {
	m         *multiLane
	q         *qp
	initiator bool
	token     [message.TokenSize]byte
	maxLanes  int
	routes    routes
	dialing   [message.MaxLanes]bool

	ctx         context.Context // ends with the connection
	cancel      context.CancelFunc
	ended       atomic.Bool               // the queue pair has ended
	lastFrame   atomic.Pointer[lastFrame] // its Terminate, if it has sent one
	lastNumber  atomic.Uint32             // number of the last lane that this side made
	noLaneSince atomic.Int64              // when the last lane was lost, in ns since started; 0: there is one
}

func (d *laneDialer) init(m *multiLane, initiator bool, token [message.TokenSize]byte, routes routes) {
	d.m, d.q, d.initiator, d.token, d.routes = m, m.q, initiator, token, routes
	d.maxLanes = d.q.agreed.Lanes
	if initiator {
		d.lastNumber.Store(^uint32(0)) // the next is 1
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
}

// handOverLane queues a lane for the queue pair's driver. It may be called from any goroutine.
func (d *laneDialer) handOverLane(l *laneConn) {
	d.q.rcq.HandOver(queuepair.Arrival{
		Enter: func() { d.m.attach(l) },
		Drop:  func() { sys.CloseFD(l.fd) },
	})
}

// handOverFailure queues the news that no lane can be made for the queue pair's driver. It may be called from
// any goroutine.
func (d *laneDialer) handOverFailure(err error) {
	d.q.rcq.HandOver(queuepair.Arrival{Enter: func() { d.m.noLaneComes(err) }})
}

// dialMissing makes the endpoint dial the missing lanes. The initiator of the queue pair dials them; the
// responder only if it has none left.
func (d *laneDialer) dialMissing() {
	q := d.q
	if !q.open || d.m.recv.terminate != nil || q.PeerEnd() && len(d.m.conns) > 0 {
		return
	}
	limit := d.maxLanes
	if !d.initiator {
		limit = 1
	}
	have := len(d.m.conns)
	for _, dialed := range d.dialing {
		if dialed {
			have++
		}
	}
	for slot := 0; slot < limit && have < limit; slot++ {
		if d.dialing[slot] || d.holds(slot) {
			continue
		}
		d.dialing[slot] = true
		have++
		q.dev.end.dialLane(d, slot)
	}
}

func (d *laneDialer) holds(slot int) bool {
	for _, l := range d.m.conns {
		if l.slot == slot {
			return true
		}
	}
	return false
}

// laneNumber returns an unused lane number: odd ones belong to the initiator of the queue pair.
func (d *laneDialer) laneNumber() uint16 {
	for {
		if n := uint16(d.lastNumber.Add(2)); n != 0 {
			return n
		}
	}
}

const (
	lanePause    = 5 * time.Millisecond // before a lane is tried again; it doubles
	maxLanePause = 500 * time.Millisecond
	noLanePause  = 50 * time.Millisecond // at most, while there is no lane at all
)

// dialLane dials a lane, and repeats that until it succeeds or the queue pair has ended.
func (e *endpoint) dialLane(d *laneDialer, slot int) {
	ctx, done, err := e.table.Begin(d.ctx)
	if err != nil {
		d.handOverFailure(err)
		return
	}
	go func() {
		defer done()
		for pause := lanePause; ; pause = min(2*pause, maxLanePause) {
			err := e.join(ctx, d, slot)
			if err == nil {
				return
			}
			alone := time.Duration(d.noLaneSince.Load())
			switch {
			case ctx.Err() != nil && e.table.Context().Err() != nil:
				d.handOverFailure(transport.ErrDeviceGone)
				return
			case ctx.Err() != nil:
				return
			case errors.Is(err, handshake.ErrGone), errors.Is(err, syscall.ECONNREFUSED), alone != 0 &&
				d.m.now()-alone > e.dev.opts.PeerTimeout:
				d.handOverFailure(err) // it counts only if there is no lane
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
func (e *endpoint) join(ctx context.Context, d *laneDialer, slot int) error {
	dialer := net.Dialer{LocalAddr: e.dev.opts.local(slot), Timeout: e.dev.opts.PeerTimeout}
	dialer.SetMultipathTCP(false)
	conn, err := dialer.DialContext(ctx, "tcp", d.routes.to(slot))
	if err != nil {
		return err
	}
	defer conn.Close()
	h := setup.New(&e.local, conn)
	defer h.Until(ctx, e.dev.opts.PeerTimeout)()
	number := d.laneNumber()
	if err := h.Introduce(transport.PeerAt(d.q.Attr.Peer, d.q.Attr.Port), number); err != nil {
		return handshake.Vanished(err)
	}
	if err := h.Request(e.offer(d.q.Attr.QPConfig, h), d.token[:]); err != nil {
		return handshake.Vanished(err)
	}
	if _, _, err := h.Answer(); err != nil {
		return handshake.Vanished(err)
	}
	return e.joined(h, d, &laneConn{m: d.m, number: number, slot: slot})
}

// acceptLane accepts a lane with which an authenticated peer joins a queue pair.
func (e *endpoint) acceptLane(h *setup.Handshake, token []byte) error {
	q, state, _ := e.table.Current(h.Peer())
	var d *laneDialer
	if q != nil {
		if m, ok := q.sequencer.(*multiLane); ok {
			d = &m.dial
		}
	}
	early := state == cm.Accepting || state == cm.Dialing || state == cm.Committing
	if d == nil && early {
		h.Reject(handshake.RejectBusy, "the queue pair is being made")
		return cm.ErrCollision
	}
	number := h.Lane()
	known := d != nil && hmac.Equal(d.token[:], token) && (number%2 == 1) != d.initiator
	if known && d.ended.Load() {
		if last := d.lastFrame.Load(); last != nil {
			return e.repeatTerminate(h, d, last)
		}
	}
	if !known || d.ended.Load() {
		h.Reject(handshake.RejectGone, "the queue pair has ended")
		return handshake.ErrGone
	}
	if err := h.Accept(e.offer(d.q.Attr.QPConfig, h), nil); err != nil {
		return err
	}
	return e.joined(h, d, &laneConn{m: d.m, number: number, slot: -1, greeted: true,
		awaitingFirstFrame: true})
}

// joined hands a lane over to the queue pair's driver.
func (e *endpoint) joined(h *setup.Handshake, d *laneDialer, l *laneConn) error {
	local, remote := h.LocalAddr().String(), h.RemoteAddr().String()
	fd, session, err := h.Detach()
	if err != nil {
		return err
	}
	d.q.logConnection(local, remote, session)
	l.connect(fd, session)
	d.handOverLane(l)
	return nil
}
