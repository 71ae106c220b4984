package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// connections connects this endpoint to peers, off the data path (docs/internals/adr/0016, "Connection setup
// runs off the data path"). One goroutine at a time, connectWaiting, begins the connects one after another. A
// connect that a device cannot begin without waiting (transport.Beginner) then runs in a goroutine of its
// own. The devices call back into acceptor.
//
// Invariants, under the lock: a peer has at most one channel, made by Prepare; it is open from Connected on,
// which is called at most once. Nobody waits for a connect: sends queue at the peer meanwhile.
type connections struct {
	e             *Engine
	lookup        Lookup
	lookupAhead   func(ranks []uint32)
	timeout       time.Duration    // of a connect
	channelConfig channel.Config   // of every channel
	connecting    sync.WaitGroup   // goroutines of connects
	underWay      atomic.Int32     // peers that are neither connected nor failed
	waiting       []*peer          // to which connectWaiting is yet to connect
	begun         int              // connects that a device has begun, and of which no peer knows
	unasked       bool             // there are messages without a connection of which no peer may know
	running       bool             // connectWaiting runs, or will
	unconnected   int              // peers that got a message without a connection
	connects      chan struct{}    // Hub.connects
	emptyRecv     transport.RecvWR // for a message without bytes
}

func (d *connections) init(e *Engine, c Config) {
	d.lookupAhead = c.LookupAhead
	d.e, d.lookup, d.timeout, d.channelConfig = e, c.Lookup, c.ConnectTimeout, c.Channel
	d.connects = e.hub.connects
	d.channelConfig.BusyPolling = c.SpinTime > 0 && len(c.HandlerCores) == 0
}

// A rank runs only a few connects at once, not counting those that a device has begun by itself
// (transport.Beginner). If all ranks connect to all others at the same time, most connections have been made
// by the peer before their connect starts; started together, nearly all would be made twice. A connect
// without an answer delays the others by connectShare only.
const (
	connectsAtOnce = 4
	connectShare   = 50 * time.Millisecond
)

// acquire acquires the semaphore for a connect, for connectShare at most; leave releases it. If the context
// ends first, the connect goes on without.
func (d *connections) acquire(ctx context.Context) (leave func()) {
	select {
	case d.connects <- struct{}{}:
	default:
		d.ask()
		select {
		case d.connects <- struct{}{}:
		case <-ctx.Done():
			return func() {}
		}
	}
	end := sync.OnceFunc(func() { <-d.connects })
	timer := time.AfterFunc(connectShare, end)
	return func() {
		timer.Stop()
		end()
	}
}

// askAtOnce is how many connects a rank that shares its core begins before it wakes their peers: each of them
// might take the core at once, find one request, and sleep again.
const askAtOnce = 64

// ask wakes the peers of the connects that a device has begun.
func (d *connections) ask() {
	if d.begun > 0 {
		d.wakePeers()
	}
}

// wakePeers wakes the peers that do not know of a connect or of a message without a connection.
func (d *connections) wakePeers() {
	d.begun = 0
	for _, f := range d.e.fabrics {
		if a, ok := f.listener.(transport.Asker); ok {
			a.Ask()
		}
	}
}

// connectLocked begins a connection to a peer that has none. Sends to it wait in the peer's queue.
func (d *connections) connectLocked(p *peer) {
	d.e.mu.assertHeld()
	p.state, p.connecting = peerConnecting, true
	d.underWay.Add(1)
	d.waiting = append(d.waiting, p)
	d.runLocked()
}

// askLaterLocked has a goroutine wake the peers that got messages without a connection.
func (d *connections) askLaterLocked() {
	d.unasked = true
	d.runLocked()
}

func (d *connections) runLocked() {
	if !d.running {
		d.running = true
		d.connecting.Add(1)
		d.e.Go(d.connectWaiting)
	}
}

// settledLocked notes that a peer is connected, or has failed.
func (d *connections) settledLocked(p *peer) {
	if p.connecting {
		p.connecting = false
		d.underWay.Add(-1)
	}
}

// connectWaiting begins the connections to all peers that wait for it.
func (d *connections) connectWaiting() {
	defer d.connecting.Done()
	for next, ahead := 0, 0; ; {
		d.e.mu.Lock()
		switch {
		case next < len(d.waiting):
		case d.begun > 0 || d.unasked:
			d.unasked = false
			d.e.mu.Unlock()
			d.wakePeers()
			continue
		default:
			d.waiting, d.running = nil, false
			d.e.mu.Unlock()
			return
		}
		p := d.waiting[next]
		var ranks []uint32 // to look up at once
		if waiting := d.waiting[next:]; next >= ahead && len(waiting) > 1 {
			for _, p := range waiting {
				if p.state == peerConnecting {
					ranks = append(ranks, uint32(p.rank))
				}
			}
			ahead = len(d.waiting)
		}
		d.e.mu.Unlock()
		if len(ranks) > 1 && d.lookupAhead != nil {
			d.ask()
			d.lookupAhead(ranks)
		}
		next++
		d.connect(p)
		if d.begun == askAtOnce || d.e.waiting.spinTime > 0 {
			d.ask()
		}
	}
}

// connect begins the connection to a peer, unless it has meanwhile connected, or failed.
func (d *connections) connect(p *peer) {
	if d.connected(p) {
		return
	}
	f, addr, err := d.selectFabric(p.rank)
	if err != nil {
		d.failed(p, err)
		return
	}
	peer := transport.PeerAt(uint32(p.rank), d.e.number)
	connectAndWait := func() { // also called if Begin fails
		ctx, cancel := context.WithTimeout(d.e.waiting.life, d.timeout)
		defer cancel()
		err := f.listener.Connect(ctx, peer, addr)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no connection to rank %d at %s within %v: %w", p.rank, addr, d.timeout,
				err)
		}
		if err != nil {
			d.failed(p, err)
		}
	}
	if b, ok := f.listener.(transport.Beginner); ok && b.Begin(peer, addr, connectAndWait) {
		d.begun++
		return
	}
	leave := d.acquire(d.e.waiting.life)
	if d.connected(p) {
		leave()
		return
	}
	d.connecting.Add(1)
	d.e.Go(func() {
		defer d.connecting.Done()
		defer leave()
		connectAndWait()
	})
}

// failed marks a peer as failed because it cannot be connected to.
func (d *connections) failed(p *peer, err error) {
	d.e.mu.Lock()
	defer d.e.mu.Unlock()
	if p.state == peerConnecting {
		d.e.failures.failPeer(p, err)
	}
}

// connected reports whether a peer has meanwhile connected, or failed.
func (d *connections) connected(p *peer) bool {
	d.e.mu.Lock()
	defer d.e.mu.Unlock()
	return p.state != peerConnecting
}

// acceptor receives the callbacks of a device's connection management. A connection through
// connection-manager port k (transport.PortOf) belongs to endpoint k.
type acceptor struct {
	hub    *Hub
	fabric int // index of the device, and of each engine's fabric for it
}

var _ transport.Acceptor = (*acceptor)(nil)

// Prepare makes the channel to an authenticated peer, once, and returns its descriptor.
func (a *acceptor) Prepare(peer uint32) (transport.QPConfig, []byte, error) {
	e, err := a.hub.Endpoint(transport.PortOf(peer))
	if err != nil {
		return transport.QPConfig{}, nil, err
	}
	f, rank := e.fabrics[a.fabric], transport.RankOf(peer)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return transport.QPConfig{}, nil, e.stopped
	}
	p := e.peerLocked(int(rank))
	if p.state == peerFailed {
		return transport.QPConfig{}, nil, p.cause
	}
	if p.ch == nil {
		ch, err := channel.New(f.pd, e.connections.channelConfig)
		if err != nil {
			return transport.QPConfig{}, nil, err
		}
		p.ch, p.fabric = ch, f
	}
	if p.fabric != f {
		return transport.QPConfig{}, nil, fmt.Errorf("%w: rank %d is reached over %s, and connects over %s",
			transport.ErrInvalid, rank,
			p.fabric.name, f.name)
	}
	return transport.QPConfig{
		PD: f.pd, SendCQ: f.cq, RecvCQ: f.cq,
		SendWR: sendDepth, RecvWR: rendezvous.MaxFINs + rendezvous.MaxOpenGrants + recvSlack, Reads: f.reads,
	}, p.ch.Descriptor(), nil
}

// Connected opens the channel and sends the messages that wait for it.
func (a *acceptor) Connected(peer uint32, qp transport.QP, private []byte) {
	e := a.hub.engines[transport.PortOf(peer)].Load() // Prepare has made it
	f, rank := e.fabrics[a.fabric], transport.RankOf(peer)
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peerLocked(int(rank))
	if e.stopped != nil || p.state == peerFailed {
		qp.Abort(errors.Join(e.stopped, p.cause))
		qp.Release()
		return
	}
	if err := p.ch.Open(qp, private); err != nil {
		qp.Abort(err)
		qp.Release()
		e.failures.failPeer(p, err)
		return
	}
	if f.addPeer(p) {
		e.waiting.manyPeers.Store(true)
	}
	p.state, p.eagerLimit, p.shortLimit = peerOpen, f.eagerLimit, p.copies.begin(f)
	e.connections.settledLocked(p)
	e.recorder.Note(recorder.Connected, 0, p.rank, 0, 0)
	e.recorder.Stamp()
	if f.Device.Query().PollQP {
		p.qpPoller = qp
	}
	for range recvSlack {
		if err := qp.PostRecv(&e.connections.emptyRecv); err != nil {
			e.failures.failPeer(p, err)
			return
		}
	}
	e.Sends.sendQueuedLocked(p)
	e.Recovery.sendControls(p)
	e.hub.queues.wake() // a sleeper must look at the new connection
}

// Refused logs an incoming connection that was not accepted. It is not a warning if the initiator closed the
// connection, as a peer does that exits while it adds a lane (an additional connection of a channel), or if
// the rank is known to have failed.
func (a *acceptor) Refused(remote string, err error) {
	level := slog.LevelWarn
	if lost := errors.Is(err, transport.ErrPeerLost) && !errors.Is(err, os.ErrDeadlineExceeded); lost ||
		errors.Is(err, ErrProcFailed) {
		level = slog.LevelInfo
	}
	a.hub.log.Log(context.Background(), level, "connection turned away", "fabric",
		a.hub.devices[a.fabric].name, "from", remote, "reason", err)
}
