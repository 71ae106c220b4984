package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
)

// coalescer decides when a send that nobody waits for yet may hold its bytes back, so that many messages to
// one peer share a write. Peer by peer, the first since the last pass goes out at once: a program that
// sends a message to each of its neighbors and goes off to compute has sent them. After it small messages
// are gathered until the next pass (every Wait, Test or Probe makes one), or until there is enough.
// Messages of middling size are gathered only in a stream of them, large ones never. After a long burst
// the first of the next one is held too: a program that sends in bursts goes on to.
//
// A timer sends what is coalesced if the rank goes off to compute: after a millisecond, unless it has
// hardly ever found anything to send. A timer that fires costs more than some bursts take, so a program
// that has always come back by itself is looked after less and less often.
type coalescer struct {
	e       *Engine
	peers   []*peer // that have had sends since the last pass
	pending bool    // some of these hold bytes
	armed   bool    // the timer runs
	delay   time.Duration
	timer   *time.Timer
	memory  [][]byte // for the batches of peers, of eager.BatchSize each
}

// burstStats is what a peer was sent since the last pass.
type burstStats struct {
	count     int
	previous  int  // of the burst before
	coalesced bool // something waits in the provider for what follows
}

const (
	longBurst     = 8        // sends between two passes make it likely that more follow
	coalesceLimit = 16 << 10 // bytes of a message from which a write of its own costs little
	flushDelay    = time.Millisecond
	maxFlushDelay = 64 * time.Millisecond
)

func (h *coalescer) init(e *Engine) {
	h.e = e
	h.delay = flushDelay
	h.timer = time.AfterFunc(time.Hour, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		h.armed = false
		if !h.pending {
			h.delay = min(2*h.delay, maxFlushDelay)
			return
		}
		h.delay = flushDelay
		if e.stopped == nil {
			e.progress.poll()
		}
	})
	h.timer.Stop()
}

// shouldCoalesce tells whether a message of n bytes to a peer is coalesced.
func (h *coalescer) shouldCoalesce(p *peer, n int) bool {
	b := &p.burst
	h.count(p)
	stream := b.count > longBurst || b.previous >= longBurst
	if !stream && (b.count == 1 || n > eager.MaxBatched) || n > coalesceLimit {
		return false
	}
	h.holdBack(p)
	return true
}

// count counts a message to a peer.
func (h *coalescer) count(p *peer) {
	if p.burst.count++; p.burst.count == 1 {
		h.peers = append(h.peers, p)
	}
}

// holdBack has the next pass send what is coalesced for a peer, or the timer.
func (h *coalescer) holdBack(p *peer) {
	h.pending, p.burst.coalesced = true, true
	if !h.armed {
		h.armed = true
		h.timer.Reset(h.delay)
	}
}

// flush sends what is coalesced.
func (h *coalescer) flush() {
	if len(h.peers) == 0 {
		return
	}
	for _, p := range h.peers {
		b := &p.burst
		held := b.coalesced
		*b = burstStats{previous: b.count}
		if !held || p.state != peerOpen {
			continue
		}
		if sent, err := h.sendBatch(p, false); err != nil {
			h.e.failures.failPeer(p, err)
		} else if sent { // one that lacks credits goes when they come
			p.ch.QP().Flush()
		}
	}
	h.peers, h.pending = h.peers[:0], false
}

// Small messages of one burst share a slot (eager.Batch). A message that goes into a batch is copied, and its
// send complete; the batch goes out with the next pass, when it is full, or before anything else goes to the
// same peer.

// polledBatchLimit is how many messages a batch has for a peer who shares our memory: there a Write costs
// little, and he takes the first while the next are gathered.
const polledBatchLimit = 16

// continueRun is shouldCoalesce and add of a message that continues the last run of its peer's batch, as most
// of a burst do. False means that nothing was done.
func (h *coalescer) continueRun(p *peer, env envelope, payload []byte) bool {
	if !p.burst.coalesced || p.burst.count <= longBurst || p.state != peerOpen || p.queued() ||
		p.refusesPayload(len(payload)) || !p.batch.Continue(p.ch, env, payload) {
		return false
	}
	p.burst.count++
	h.added(p, env, len(payload))
	return true
}

// add puts a message of a burst, of eager.MaxBatched bytes at most, into its peer's batch, and has sent it
// then; false if it has to go by itself.
func (h *coalescer) add(p *peer, env envelope, payload []byte) bool {
	if len(payload) > p.eagerLimit || p.state != peerOpen || p.queued() ||
		p.refusesPayload(len(payload)) {
		return false
	}
	if p.batch.Count() == 0 {
		h.openBatch(p)
	}
	if !p.batch.Continue(p.ch, env, payload) {
		h.recordRun(p)
		if !p.batch.Add(p.ch, env, payload) {
			if sent, err := h.sendBatch(p, true); !sent || err != nil {
				return false // it is tried again with the message that waits after it
			}
			h.openBatch(p)
			if !p.batch.Add(p.ch, env, payload) {
				return false
			}
		}
	}
	h.added(p, env, len(payload))
	return true
}

// added does what a message in a batch gives occasion to.
func (h *coalescer) added(p *peer, env envelope, n int) {
	p.unrecorded++
	p.stats.eager(n)
	h.e.hook.sent(env, p.rank, n)
	if p.polled && p.batch.Count() >= polledBatchLimit {
		h.sendBatch(p, true) // what does not go now goes later, and what is wrong is found then
	}
}

// recordRun tells the recorder of the messages of the last run that it has not been told of: together, since
// that costs as much as to tell of one.
func (h *coalescer) recordRun(p *peer) {
	if p.unrecorded > 0 {
		env, n := p.batch.LastRun()
		h.e.recorder.NoteTimes(recorder.Sent, env.Context, p.rank, int(env.Tag), n, p.unrecorded)
		p.unrecorded = 0
	}
}

// openBatch gives a peer's batch its memory.
func (h *coalescer) openBatch(p *peer) {
	h.releaseBatch(p)
	var m []byte
	if n := len(h.memory); n > 0 {
		m, h.memory = h.memory[n-1], h.memory[:n-1]
	} else {
		m = make([]byte, eager.BatchSize)
	}
	p.batch.SetMemory(m)
}

// sendBatch sends what a peer's batch has gathered. An error is of the peer, who has to be failed.
func (h *coalescer) sendBatch(p *peer, more bool) (bool, error) {
	if p.batch.Count() == 0 {
		return true, nil
	}
	flags := sendFlags(more)
	sent, err := p.batch.TrySend(p.ch, flags)
	if !sent && err == nil {
		sent, err = p.batch.TrySend(p.ch, flags|channel.FlagBeyondWindow)
	}
	h.recordRun(p) // while the messages travel
	if sent {
		h.releaseBatch(p)
	} else {
		h.e.Sends.retryIfQueueFullLocked(p)
	}
	return sent, err
}

func (h *coalescer) releaseBatch(p *peer) {
	if m := p.batch.TakeMemory(); m != nil {
		h.memory = append(h.memory, m)
	}
}
