package engine

import (
	"errors"
	"slices"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/transport"
)

// progressEngine makes progress, one pass at a time: a pass polls the fabrics, routes arrivals, and advances
// the peers with work left over. Goroutines that wait make passes, or a completion handler does (see
// waiting). Timers make passes too: those of the heartbeat, coalescer, passiveProgress, idleShrinker and
// completionHandler.
//
// Invariants, under the lock: a peer with work that lacked room, if no event announces room, is in deferred,
// once; each pass advances all of these. Nothing in a pass blocks, except that Windows.carryOut may wait for
// the lock of a window's elements, up to lockTimeout of package rma.
type progressEngine struct {
	e        *Engine
	deferred []*peer // peers with work for a later pass
	draining bool    // Drain waits for drained

	wcs [32]transport.WC
	qps [32]transport.QPN
}

// poll makes a pass, and reports whether anything happened.
func (g *progressEngine) poll() bool {
	g.e.stats.Passes++
	outer := g.e.Collectives.enterLocked()
	g.e.Recvs.copyBudget = copyBudgetPerPass
	g.e.coalescer.flush()
	g.beginPass()
	if len(g.deferred) > 0 {
		g.advanceDeferred() // first: work that this pass defers is for the next one
	}
	busy := false
	for _, f := range g.e.fabrics {
		busy = g.pollFabric(f) || busy
	}
	if len(g.e.MailboxCalls.waiting) > 0 {
		busy = g.e.MailboxCalls.pollLocked() || busy
	}
	if len(g.e.Collectives.watching) > 0 {
		g.e.Collectives.checkWatchedLocked()
	}
	busy = g.e.Windows.copyShared() || busy
	busy = g.e.Collectives.leaveLocked(outer) || busy
	if len(g.e.MailboxCalls.released) > 0 {
		g.e.MailboxCalls.freeReleasedLocked()
	}
	if len(g.e.MailboxCalls.owing) > 0 {
		g.e.MailboxCalls.acknowledgeOwedLocked()
	}
	if g.draining && g.drained() {
		g.e.waiting.wakeConditionsLocked()
	}
	return busy
}

// pass makes a pass for a goroutine that does not wait. If a completion handler makes the passes, pass does
// what the handler does for an event.
func (g *progressEngine) pass() {
	if h := &g.e.completionHandler; h.active() {
		h.runLocked()
	} else {
		g.poll()
	}
}

// pollFabric is the pass over one fabric.
func (g *progressEngine) pollFabric(f *fabric) (busy bool) {
	handled := g.e.completionHandler.active()
	if !handled && g.e.Sends.takeFINsLocked(f) {
		return true // a send may be complete; the next receive may take its message directly
	}
	for {
		n := f.cq.Poll(g.wcs[:])
		for i := range n {
			g.e.routes.completion(f, &g.wcs[i])
		}
		g.e.stats.Completions += uint64(n)
		busy = busy || n > 0
		if n < len(g.wcs) {
			break
		}
	}
	for {
		n := f.cq.Placed(g.qps[:])
		for _, q := range g.qps[:n] {
			if p := f.peerOf(q); p != nil {
				g.e.Recvs.drainLocked(p)
			}
		}
		g.e.stats.Completions += uint64(n)
		busy = busy || n > 0
		if n < len(g.qps) {
			break
		}
	}
	for _, p := range f.polled {
		if p.ch.Ready() {
			g.e.Recvs.drainLocked(p)
			busy = true
		}
	}
	if handled {
		// Placed has reported FINs, too, and an event reports the next ones only after that.
		busy = g.e.Sends.takeFINsLocked(f) || busy
	}
	return f.sender.CopyShared() || f.receiver.Copied() || busy
}

// beginPass gives the fabrics the copy budget of a pass.
func (g *progressEngine) beginPass() {
	for _, f := range g.e.fabrics {
		f.receiver.BeginPass()
	}
}

// armLocked arms each completion queue of the endpoint: traffic ends the next sleep.
func (g *progressEngine) armLocked() {
	g.e.mu.assertHeld()
	for _, f := range g.e.fabrics {
		f.cq.Arm()
	}
}

// requestNotify makes each completion queue raise an event for the completion handler.
func (g *progressEngine) requestNotify() (errs error) {
	for _, f := range g.e.fabrics {
		errs = errors.Join(errs, f.cq.RequestNotify(notifyAll))
	}
	return errs
}

// moreToCopy reports whether the last pass has left something to copy, for which no event comes.
func (g *progressEngine) moreToCopy() bool {
	return slices.ContainsFunc(g.e.fabrics, func(f *fabric) bool { return f.receiver.MoreToCopy() })
}

// advanceOrFail advances a peer, or marks it as failed if err is not nil.
func (g *progressEngine) advanceOrFail(p *peer, err error) {
	if err != nil {
		g.e.failures.failPeer(p, err)
		return
	}
	g.advancePeer(p)
}

// advancePeer sends to a peer the messages that lacked room until now, and the credits and requests that are
// due.
func (g *progressEngine) advancePeer(p *peer) {
	if g.e.closing || p.ended || !g.advanceProtocols(p) { // nothing can be sent after Close
		return
	}
	resizing, phase := p.ch.Due() == channel.DueResize, p.ch.Phase()
	again, err := p.ch.Progress()
	if err != nil {
		g.e.failures.failPeer(p, err)
		return
	}
	if now := p.ch.Phase(); now != phase {
		g.e.recorder.Note(recorder.Phase, 0, p.rank, 0, now)
		g.e.hook.phase(g.e.number, p.rank, now)
	}
	// after a resize, messages that waited for larger slots can be sent
	if resizing && p.ch.Due() != channel.DueResize && !g.advanceProtocols(p) {
		return
	}
	if p.ch.Phase() > 0 {
		g.e.idleShrinker.arm()
	}
	if again {
		g.deferPeer(p)
	}
}

// advanceProtocols sends to a peer the messages that lacked room until now; false if the peer is not open.
func (g *progressEngine) advanceProtocols(p *peer) bool {
	if p.state == peerOpen && p.sendPending() {
		g.e.Sends.sendQueuedLocked(p)
	}
	g.e.Recovery.sendControls(p)
	if p.state != peerOpen {
		return false
	}
	if !p.outbox.empty() {
		if g.e.Windows.sendWaiting(p); p.state != peerOpen {
			return false
		}
	}
	if p.fabric.rendezvousIdle() {
		return true
	}
	err := p.fabric.receiver.Progress(p.ch)
	if err == nil {
		err = p.fabric.sender.Progress(p.ch)
	}
	if err != nil {
		g.e.failures.failPeer(p, err)
		return false
	}
	if p.fabric.receiver.SendQueueFull(p.ch) || p.fabric.sender.SendQueueFull(p.ch) {
		g.deferPeer(p)
	}
	return true
}

// deferUnsent makes the next pass retry if the rendezvous protocols found no room in the send queue, or if a
// resize must come first: no event announces room.
func (g *progressEngine) deferUnsent(p *peer) {
	if p.fabric.receiver.SendQueueFull(p.ch) || p.fabric.sender.SendQueueFull(p.ch) ||
		p.ch.Due() == channel.DueResize {
		g.deferPeer(p)
	}
}

// deferPeer makes the next pass advance a peer.
func (g *progressEngine) deferPeer(p *peer) {
	if !p.deferred {
		p.deferred = true
		g.deferred = append(g.deferred, p)
	}
}

// advanceDeferred advances the peers that were deferred.
func (g *progressEngine) advanceDeferred() {
	n := len(g.deferred)
	for _, p := range g.deferred[:n] {
		p.deferred = false
		g.advancePeer(p)
	}
	g.deferred = append(g.deferred[:0], g.deferred[n:]...)
}

// pollPeer makes the provider place arrivals: only those of this peer, if alone is set and the provider can
// do that. came reports whether a message of the peer may be in its ring, other whether anything else has
// happened.
func (g *progressEngine) pollPeer(p *peer, alone bool) (came, other bool) {
	if alone && p.qpPoller != nil {
		if polled, came := p.qpPoller.PollQP(); polled {
			return came, false
		}
	}
	n := p.fabric.cq.Poll(g.wcs[:])
	for i := range n {
		g.e.routes.completion(p.fabric, &g.wcs[i])
	}
	return p.ch.Ready(), n > 0
}

// drained reports whether nothing is left to be sent to any peer.
func (g *progressEngine) drained() bool {
	for _, p := range g.e.peers {
		if p == nil {
			continue
		}
		if p.sendPending() || p.state == peerOpen && (len(p.controls) > 0 || !p.outbox.empty() ||
			p.fabric.sender.Outstanding(p.ch) > 0) {
			return false
		}
		// sent messages may wait for the resize that follows them
		if p.state == peerOpen && p.ch.Due() == channel.DueResize {
			g.deferPeer(p)
			return false
		}
	}
	return true
}
