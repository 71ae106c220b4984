package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// peerState is where the connection to another rank is.
type peerState uint8

const (
	peerIdle       peerState = iota // no traffic yet; left by the first send, or by the peer's connection
	peerConnecting                  // a connect is under way and sends wait in the queue; left by Connected or by its failure
	peerOpen                        // the channel is open; left by close or failure
	peerClosed                      // closed in order at Shutdown; final
	peerFailed                      // lost; final: everything that names the peer fails with cause
)

// peer is what the engine knows of another rank.
type peer struct {
	rank   int
	state  peerState
	most   int     // bytes of a message in one piece above which it goes by rendezvous; 0 before the peer is open
	fabric *fabric // nil until the connection is begun, from either side
	ch     *channel.Channel
	cause  error // of peerFailed

	queue    []*request // sends that wait for a connection or for credits, in the order of their posting
	head     int        // of queue
	retrying bool       // is in Engine.retry
	numbers  numbers
	batch    eager.Batch
	burst    burst
	in       incoming
	holding  bool             // has been told to announce payload
	watched  bool             // its ring is looked into: nobody tells what is placed there
	looker   transport.Looker // its queue pair, if that can be looked at alone
	stats    protocols
}

func (e *Engine) peer(rank int) *peer {
	if p := e.peers[rank]; p != nil {
		return p
	}
	p := &peer{rank: rank}
	e.peers[rank] = p
	return p
}

// connect begins a connection to a peer that has none. The sends that need it wait in the peer's queue.
func (e *Engine) connect(p *peer) {
	p.state = peerConnecting
	e.dialing.Add(1)
	go func() {
		defer e.dialing.Done()
		ctx, cancel := context.WithTimeout(e.waiting.life, e.dialFor)
		defer cancel()
		f, addr, err := e.reach(p.rank)
		if err == nil {
			err = f.endpoint.Connect(ctx, uint32(p.rank), addr)
		}
		if err == nil {
			return
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no connection to rank %d at %s within %v: %w", p.rank, addr, e.dialFor, err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if p.state == peerConnecting {
			e.failPeer(p, err)
		}
	}()
}

// acceptor is the engine as the endpoint of a fabric sees it.
type acceptor struct {
	e *Engine
	f *fabric
}

// Prepare makes the channel to a peer that has proved who it is, once, and describes it.
func (a *acceptor) Prepare(rank uint32) (transport.QPConfig, []byte, error) {
	e, f := a.e, a.f
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return transport.QPConfig{}, nil, e.dead
	}
	p := e.peer(int(rank))
	if p.state == peerFailed {
		return transport.QPConfig{}, nil, p.cause
	}
	if p.ch == nil {
		ch, err := channel.New(f.pd, e.chanConf)
		if err != nil {
			return transport.QPConfig{}, nil, err
		}
		p.ch, p.fabric = ch, f
	}
	if p.fabric != f {
		return transport.QPConfig{}, nil, fmt.Errorf("%w: rank %d is reached over %s, and connects over %s", transport.ErrInvalid, rank,
			p.fabric.name, f.name)
	}
	return transport.QPConfig{
		PD: f.pd, SendCQ: f.cq, RecvCQ: f.cq,
		SendWR: sendDepth, RecvWR: rendezvous.MaxAnnounced + rendezvous.MaxGranted + recvSlack, Reads: f.reads,
	}, p.ch.Descriptor(), nil
}

// Connected opens the channel and sends what has waited for it.
func (a *acceptor) Connected(rank uint32, qp transport.QP, private []byte) {
	e := a.e
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer(int(rank))
	if e.dead != nil || p.state == peerFailed {
		qp.Abort(errors.Join(e.dead, p.cause))
		qp.Release()
		return
	}
	if err := p.ch.Open(qp, private); err != nil {
		qp.Abort(err)
		qp.Release()
		e.failPeer(p, err)
		return
	}
	a.f.opened(p)
	p.state, p.most = peerOpen, a.f.eagerMost
	p.looker, _ = qp.(transport.Looker)
	for range recvSlack {
		if err := qp.PostRecv(&e.noBytes); err != nil {
			e.failPeer(p, err)
			return
		}
	}
	e.advance(p)
	e.wake() // a sleeper must look at the new connection
}

// Refused tells of an attempt from outside that came to nothing. One that vanished by itself is nothing to warn of: a lane that a peer was
// about to add ends so when the peer does.
func (a *acceptor) Refused(remote string, err error) {
	level := slog.LevelWarn
	if errors.Is(err, transport.ErrPeerLost) && !errors.Is(err, os.ErrDeadlineExceeded) {
		level = slog.LevelInfo
	}
	a.e.log.Log(context.Background(), level, "connection turned away", "rank", a.e.rank, "fabric", a.f.name, "from", remote, "reason", err)
}

// enqueue lets a send wait for its peer.
func (p *peer) enqueue(r *request) { p.queue = append(p.queue, r) }

func (p *peer) queued() bool { return p.head < len(p.queue) }

// waiting tells whether something is to go before what comes now.
func (p *peer) waiting() bool { return p.batch.Count() > 0 || p.queued() }

func (p *peer) dequeue() {
	p.queue[p.head] = nil
	p.head++
	if p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	}
}

// kick gives a peer the chance to do what lacked room so far, and what is due.
func (e *Engine) kick(p *peer) {
	if e.closing || !e.proceed(p) { // behind Close nothing can be said, and nobody needs credit any more
		return
	}
	paused := p.ch.Paused()
	owing, err := p.ch.Progress()
	if err != nil {
		e.failPeer(p, err)
		return
	}
	if paused && !p.ch.Paused() && !e.proceed(p) { // what waited for larger slots goes on
		return
	}
	if p.ch.Phase() > 0 {
		e.reclaim.arm()
	}
	if owing {
		e.later(p)
	}
}

// proceed gives a peer the chance to do what lacked room so far; false if the peer is not open.
func (e *Engine) proceed(p *peer) bool {
	if p.state == peerOpen && p.waiting() {
		e.advance(p)
	}
	if p.state != peerOpen {
		return false
	}
	if p.fabric.quiet() {
		return true
	}
	err := p.fabric.fetcher.Progress(p.ch)
	if err == nil {
		err = p.fabric.announcer.Progress(p.ch)
	}
	if err != nil {
		e.failPeer(p, err)
		return false
	}
	if p.fabric.fetcher.Full(p.ch) || p.fabric.announcer.Full(p.ch) {
		e.later(p)
	}
	return true
}

// later has the next pass kick a peer.
func (e *Engine) later(p *peer) {
	if !p.retrying {
		p.retrying = true
		e.retry = append(e.retry, p)
	}
}

// retryPeers looks again at peers that could not do all that they had to.
func (e *Engine) retryPeers() {
	n := len(e.retry)
	for _, p := range e.retry[:n] {
		p.retrying = false
		e.kick(p)
	}
	e.retry = append(e.retry[:0], e.retry[n:]...)
}

// connectionEnded takes the first completion that says that a peer's QP is no more.
func (e *Engine) connectionEnded(p *peer, wc *transport.WC) {
	cause := p.ch.QP().Err()
	if cause == nil {
		cause = wc.Err
	}
	if e.closing && (cause == nil || errors.Is(cause, transport.ErrClosed)) {
		p.state = peerClosed
		return
	}
	if cause == nil {
		cause = fmt.Errorf("%w: %v", transport.ErrPeerLost, wc.Status)
	}
	e.failPeer(p, cause)
}

// failPeer gives a peer up: the connection is cut first, so that nothing is placed in any buffer any more, then every
// operation that names the peer fails.
func (e *Engine) failPeer(p *peer, cause error) {
	if p.state == peerFailed || e.closing && errors.Is(cause, transport.ErrState) { // what came behind our Close and wanted an answer
		return
	}
	wasOpen := p.state == peerOpen
	if wasOpen && errors.Is(cause, transport.ErrState) {
		cause = cmp.Or(p.ch.QP().Err(), cause) // why nothing can be posted says more than that
	}
	p.state = peerFailed
	e.failed = append(e.failed, p)
	p.cause = fmt.Errorf("%w: rank %d: %w", ErrProcFailed, p.rank, cause)
	if wasOpen {
		p.ch.QP().Abort(cause)
	}
	e.failRequestsOf(p)
}

func (e *Engine) failRequestsOf(p *peer) {
	p.batch.Drop()
	e.reclaimBatch(p)
	for p.queued() {
		r := p.queue[p.head]
		p.dequeue()
		e.complete(r, p.cause)
	}
	if p.ch != nil {
		byToken := func(token uint64) {
			if r := e.requests.byToken(token); r != nil && !r.completed() {
				e.complete(r, p.cause)
			}
		}
		if err := errors.Join(p.fabric.announcer.Fail(p.ch, byToken), p.fabric.fetcher.Fail(p.ch, byToken), p.ch.Fail(p.cause)); err != nil {
			e.log.Error("giving a peer's memory back", "rank", e.rank, "peer", p.rank, "error", err)
		}
	}
	if r := p.in.r; r != nil && !r.completed() {
		e.complete(r, p.cause) // the rest of its message will not come
	}
	p.in = incoming{}
	// A receive from any source could wait for ever for the one that is gone: it fails too, and may be posted again.
	for m := range e.table.Posted() {
		if m.Source == int32(p.rank) || m.Source == AnySource && e.inGroup(m.Context, p.rank) {
			e.table.Withdraw(m)
			e.complete(m.Value, p.cause)
		}
	}
	e.waiting.wakeAny() // probes look at the peer's state themselves
}
