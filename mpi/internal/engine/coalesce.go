package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
)

// coalescer decides which nonblocking sends are delayed, so that several messages to one peer share a write.
// The sends to one peer between two passes are a burst. The first of a burst goes out at once: a program that
// sends a message to each of its neighbors and then computes has sent them. Later small messages are
// collected until the next pass (every Wait, Test or Probe makes one), or until a batch is full. Medium-sized
// messages are delayed only in a long burst, large ones never. After a long burst the first message of the
// next one is delayed too, because a program that sends in bursts usually continues to. The engine's lock
// guards the coalescer.
//
// If the rank computes instead of making passes, a timer sends the delayed messages after a millisecond. A
// timer that fires costs more than some bursts take, so each time that it finds nothing to send its delay
// doubles, up to maxFlushDelay.
type coalescer struct {
	e       *Engine
	peers   []*peer // to which sends have begun since the last pass
	pending bool    // some of these have delayed bytes
	armed   bool    // the timer runs
	delay   time.Duration
	timer   *time.Timer
	memory  [][]byte // free buffers for batches, of eager.BatchSize each
}

// burstStats counts the sends to a peer since the last pass.
type burstStats struct {
	count     int
	previous  int  // count of the burst before
	coalesced bool // some bytes are delayed, here or in the provider
}

const (
	longBurst     = 8        // sends of a burst from which more are likely to follow
	coalesceLimit = 16 << 10 // length from which a write for one message costs little
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

// shouldCoalesce reports whether a message of n bytes to a peer is delayed.
func (h *coalescer) shouldCoalesce(p *peer, n int) bool {
	b := &p.burst
	if b.count++; b.count == 1 {
		h.peers = append(h.peers, p)
	}
	stream := b.count > longBurst || b.previous >= longBurst
	if !stream && (b.count == 1 || n > eager.MaxBatched) || n > coalesceLimit {
		return false
	}
	h.pending, b.coalesced = true, true // the next pass, or the timer, sends it
	if !h.armed {
		h.armed = true
		h.timer.Reset(h.delay)
	}
	return true
}

// flush sends the delayed messages.
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
		} else if sent { // a batch without credits is sent when they arrive
			p.ch.QP().Flush()
		}
	}
	h.peers, h.pending = h.peers[:0], false
}

// Small messages of one burst share a slot (eager.Batch). A message in a batch is copied, and its send
// complete; the batch goes out with the next pass, when it is full, or before any other message to the same
// peer.

// polledBatchLimit is the number of messages in a batch to a peer that polls its ring: there a Write costs
// little, and the peer takes the first batch while the next is collected.
const polledBatchLimit = 16

// maxBatched returns the length of the longest message that shares a slot with others.
func (p *peer) maxBatched() int {
	if p.polled {
		return eager.MaxBatchedMapped
	}
	return eager.MaxBatched
}

// continueRun is shouldCoalesce and add for a message that continues the last run of its peer's batch, as
// most messages of a burst do. It does nothing if it returns false.
func (h *coalescer) continueRun(p *peer, env envelope, payload []byte) bool {
	if !p.burst.coalesced || p.burst.count <= longBurst || p.state != peerOpen || p.queued() ||
		p.refusesPayload(len(payload)) || !p.batch.Continue(p.ch, env, payload) {
		return false
	}
	p.burst.count++
	h.added(p, env, len(payload))
	return true
}

// add puts a message that may be delayed into its peer's batch; false if it must be sent by itself.
func (h *coalescer) add(p *peer, env envelope, payload []byte) bool {
	n := len(payload)
	if n > min(p.maxBatched(), p.eagerLimit) || p.state != peerOpen || p.queued() || p.refusesPayload(n) {
		return false
	}
	if p.batch.Count() == 0 {
		h.openBatch(p)
	}
	if !p.batch.Continue(p.ch, env, payload) {
		h.recordRun(p)
		if !p.batch.Add(p.ch, env, payload) {
			if sent, err := h.sendBatchAfterCredits(p); !sent || err != nil {
				return false // retried with the message that waits behind it
			}
			if !p.burst.coalesced || p.queued() || p.refusesPayload(n) {
				return false // a pass has ended the burst, or the peer refuses payload by now
			}
			h.openBatch(p)
			if !p.batch.Add(p.ch, env, payload) {
				return false
			}
		}
	}
	h.added(p, env, n)
	return true
}

// added counts a batched message and sends a full batch.
func (h *coalescer) added(p *peer, env envelope, n int) {
	p.unrecorded++
	p.stats.eager(n)
	h.e.hook.sent(env, p.rank, n)
	if p.polled && (p.batch.Count() >= polledBatchLimit || p.batch.Room() < n) {
		h.sendBatch(p, true) // retried later, where an error is handled too
	}
}

// recordRun records the messages of the last run that are not recorded yet, as one event.
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

// sendBatch sends a peer's batch. After an error the caller fails the peer.
func (h *coalescer) sendBatch(p *peer, more bool) (bool, error) {
	if p.batch.Count() == 0 {
		return true, nil
	}
	flags, n := sendFlags(more), p.batch.Len()
	began := p.copies.beginRingSample(n)
	sent, err := p.batch.TrySend(p.ch, flags)
	if sent {
		h.e.endRingSample(p, began, n)
	} else if err == nil {
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

// sendBatchAfterCredits is sendBatch in the middle of a burst: it waits for credit as a single message does.
func (h *coalescer) sendBatchAfterCredits(p *peer) (sent bool, err error) {
	for {
		sent, err = h.sendBatch(p, true)
		if sent || err != nil || !h.e.Sends.spinForCreditsLocked(p) {
			return sent, err
		}
	}
}

func (h *coalescer) releaseBatch(p *peer) {
	if m := p.batch.TakeMemory(); m != nil {
		h.memory = append(h.memory, m)
	}
}
