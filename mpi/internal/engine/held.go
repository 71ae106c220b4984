package engine

import (
	"time"

	"github.com/weft-mpi/weft/eager"
)

// held decides when a send that nobody waits for yet may hold its bytes back, so that many messages to one peer share a write. Peer by peer, the
// first since the last pass goes out at once: a program that sends a message to each of its neighbours and goes off to compute has sent
// them. Behind it small messages are gathered until the next pass (every Wait, Test or Probe makes one), or until there is enough.
// Messages of middling size are gathered only in a stream of them, large ones never. Behind a long burst the first of the next one is held
// too: a program that sends in bursts goes on to.
//
// A timer sends what is held if the rank goes off to compute: after a millisecond, unless it has hardly ever found anything to send. A timer
// that fires costs more than some bursts take, so a program that has always come back by itself is looked after less and less often.
type held struct {
	peers []*peer // that have had sends since the last pass
	any   bool    // some of these hold bytes
	armed bool    // the timer runs
	after time.Duration
	timer *time.Timer
}

// burst is what a peer was sent since the last pass.
type burst struct {
	count int
	last  int  // of the burst before
	held  bool // something waits in the provider for what follows
}

const (
	longBurst = 8        // sends between two passes make it likely that more follow
	middling  = 16 << 10 // bytes of a message from which a write of its own costs little
	heldFor   = time.Millisecond
	heldMost  = 64 * time.Millisecond
)

func (h *held) init(e *Engine) {
	h.after = heldFor
	h.timer = time.AfterFunc(time.Hour, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		h.armed = false
		if !h.any {
			h.after = min(2*h.after, heldMost)
			return
		}
		h.after = heldFor
		if e.dead == nil {
			e.pass()
		}
	})
	h.timer.Stop()
}

// hold tells whether a message of n bytes to a peer is held back.
func (h *held) hold(p *peer, n int) bool {
	b := &p.burst
	if b.count++; b.count == 1 {
		h.peers = append(h.peers, p)
	}
	stream := b.count > longBurst || b.last >= longBurst
	if !stream && (b.count == 1 || n > eager.BatchedMost) || n > middling {
		return false
	}
	h.any, b.held = true, true
	if !h.armed {
		h.armed = true
		h.timer.Reset(h.after)
	}
	return true
}

// flush sends what is held.
func (e *Engine) flush() {
	h := &e.held
	if len(h.peers) == 0 {
		return
	}
	for _, p := range h.peers {
		b := &p.burst
		held := b.held
		*b = burst{last: b.count}
		if !held || p.state != peerOpen {
			continue
		}
		if sent, err := e.sendBatch(p, false); err != nil {
			e.failPeer(p, err)
		} else if sent { // one that lacks credits goes when they come
			p.ch.QP().Flush()
		}
	}
	h.peers, h.any = h.peers[:0], false
}
