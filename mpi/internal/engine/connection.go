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

// connections connects peers. A connect runs in a goroutine of its own, off the data path
// (docs/internals/adr/0016); the fabrics call back into acceptor.
//
// Invariants, under the lock: a peer has one channel at most, made by Prepare; it is open from Connected on,
// which comes at most once. Nobody waits for a connect: sends queue at the peer meanwhile.
type connections struct {
	e             *Engine
	lookup        Lookup
	timeout       time.Duration    // of a connect
	channelConfig channel.Config   // of every channel
	connecting    sync.WaitGroup   // goroutines of connects
	underWay      atomic.Int32     // number of them
	connects      chan struct{}    // of connects that run at once, of the whole rank
	emptyRecv     transport.RecvWR // room for a message of no bytes
}

func (d *connections) init(e *Engine, c Config) {
	d.e, d.lookup, d.timeout, d.channelConfig = e, c.Lookup, c.ConnectTimeout, c.Channel
	d.connects = e.hub.connects
	d.channelConfig.BusyPolling = c.SpinTime > 0 && len(c.HandlerCores) == 0
}

// Connects take turns. Where all ranks connect to all others at once, most connections have been made by the
// peer when their turn comes; begun together, nearly all would be made twice. A connect that gets no answer
// keeps the others waiting for connectShare alone.
const (
	connectsAtOnce = 4
	connectShare   = 50 * time.Millisecond
)

// acquire waits for a connect's turn; leave ends it. Without a turn before the context ends, it goes on too.
func (d *connections) acquire(ctx context.Context) (leave func()) {
	select {
	case d.connects <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	end := sync.OnceFunc(func() { <-d.connects })
	timer := time.AfterFunc(connectShare, end)
	return func() {
		timer.Stop()
		end()
	}
}

// connectLocked begins a connection to a peer that has none. The sends that need it wait in the peer's queue.
func (d *connections) connectLocked(p *peer) {
	d.e.mu.assertHeld()
	p.state = peerConnecting
	d.connecting.Add(1)
	d.underWay.Add(1)
	d.e.Go(func() {
		defer d.connecting.Done()
		defer d.underWay.Add(-1)
		ctx, cancel := context.WithTimeout(d.e.waiting.life, d.timeout)
		defer cancel()
		leave := d.acquire(ctx)
		defer leave()
		if d.connected(p) {
			return
		}
		f, addr, err := d.selectFabric(p.rank)
		if err == nil {
			err = f.listener.Connect(ctx, transport.PeerAt(uint32(p.rank), d.e.number), addr)
		}
		if err == nil {
			return
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no connection to rank %d at %s within %v: %w", p.rank, addr, d.timeout,
				err)
		}
		d.e.mu.Lock()
		defer d.e.mu.Unlock()
		if p.state == peerConnecting {
			d.e.failures.failPeer(p, err)
		}
	})
}

// connected reports whether a peer has connected, or failed, meanwhile.
func (d *connections) connected(p *peer) bool {
	d.e.mu.Lock()
	defer d.e.mu.Unlock()
	return p.state != peerConnecting
}

// acceptor is the rank as the connection management of a device sees it. A connection is for the endpoint of
// its port.
type acceptor struct {
	hub    *Hub
	fabric int // index
}

var _ transport.Acceptor = (*acceptor)(nil)

// Prepare makes the channel to a peer that has proved who it is, once, and describes it.
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

// Connected opens the channel and sends what has waited for it.
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
	f.addPeer(p)
	p.state, p.eagerLimit, p.shortLimit = peerOpen, f.eagerLimit, f.shortLimit()
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

// Refused tells of an attempt from outside that came to nothing. One that vanished by itself is nothing to
// warn of: a lane that a peer was about to add ends so when the peer does. Nor is one of a rank that is
// already known to be lost.
func (a *acceptor) Refused(remote string, err error) {
	level := slog.LevelWarn
	if lost := errors.Is(err, transport.ErrPeerLost) && !errors.Is(err, os.ErrDeadlineExceeded); lost ||
		errors.Is(err, ErrProcFailed) {
		level = slog.LevelInfo
	}
	a.hub.log.Log(context.Background(), level, "connection turned away", "rank", a.hub.rank, "fabric",
		a.hub.devices[a.fabric].name, "from", remote, "reason", err)
}

// selectFabric chooses the fabric to a peer: both sides come to the same, since they have the same order of
// preference and see the same addresses.
func (d *connections) selectFabric(rank int) (*fabric, string, error) {
	for _, f := range d.e.fabrics {
		addr, err := d.lookup(uint32(rank), f.name)
		if err != nil {
			return nil, "", err
		}
		if addr != "" && f.listener.Reaches(addr) {
			return f, addr, nil
		}
	}
	return nil, "", fmt.Errorf("%w: no fabric of this rank reaches rank %d (shm reaches ranks of the same "+
		"host only); set WEFT_FABRIC=auto",
		transport.ErrInvalid, rank)
}
