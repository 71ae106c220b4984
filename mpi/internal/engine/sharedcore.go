package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// A rank that shares its core runs only while the others there do not, and a switch between them takes a
// microsecond. So who has the core matters:
//   - A rank that waits for ranks with other cores alone keeps its core for as long as two switches take. A
//     yield would bring back a rank that waits too.
//   - A rank whose next call will only wait for a message hands its core over before it leaves a Barrier. The
//     yield would come in that call otherwise, and keep the sender waiting until then.
//
// This is known of ranks that are bound to one processor each.

// looksElsewhere is the number of looks for messages from ranks with other cores: some 3 µs.
const looksElsewhere = 100

// processor returns the number of the only processor that this rank may use, plus one, if it shares that; or
// else 0.
func (e *Engine) processor() uint64 {
	if e.waiting.spinTime > 0 || e.mu.turns != nil {
		return 0
	}
	if cpus, err := sys.Affinity(); err == nil && len(cpus) == 1 {
		return uint64(cpus[0]) + 1
	}
	return 0
}

// awaitedBeside returns a rank with this rank's processor for which an exchange waits; -1 if there is none.
func (c *Collective) awaitedBeside() int {
	for due := c.due; due != 0; due &= due - 1 {
		peer := c.exchange[bits.TrailingZeros64(due)].Peer
		if !c.mailboxes.peers[peer].elsewhere {
			return peer
		}
	}
	return -1
}

// lookElsewhereLocked polls for messages as long as ranks with other processors alone are awaited, for left
// looks at most. It returns how many are left, and whether the exchange is over.
func (mc *MailboxCalls) lookElsewhereLocked(c *Collective, left int) (int, bool) {
	mc.e.mu.assertHeld()
	number := mailboxNumber(c.mailboxes.exchange)
	for left > 0 && c.awaitedBeside() < 0 {
		word, room := c.awaited()
		for !room && uint32(atomic.LoadUint64(word)) != number {
			if left--; left <= 0 || mc.e.mu.wanted() {
				return 0, false
			}
			sys.AwaitLoads()
		}
		left--
		if mc.advanceLocked(c, false) {
			return left, true
		}
	}
	return left, false
}

// handover decides whether a rank hands its core over before it leaves a Barrier: if the call that follows
// only receives, and has not found its messages at once before.
type handover struct {
	on       bool // the rank's only processor is known, and shared
	followed bool // the latest exchange was a Barrier's
	handed   bool // likewise, and the rank handed its core over
	votes    int  // of the calls that followed, for; below 0: against
	awaited  int  // a rank that the latest of them awaited; one with this rank's processor if there was any
	away     bool // awaited has another processor
	barriers uint // that handed over or would have
}

const (
	handoverVotes = 3 // at most, for or against
	// handoverYields bounds how often a rank yields until a rank beside it has sent what the next call
	// awaits: the system may prefer other threads.
	handoverYields = 3
	// handoverSampleEvery is how many Barriers there are to one that does not hand over, so that the next
	// call shows whether that is still of use.
	handoverSampleEvery = 512
)

// yields is called after the first look for the messages of an exchange, and returns how often the rank is to
// yield its core before it leaves. found says whether the exchange is over.
func (h *handover) yields(c *Collective, found bool) int {
	if h.followed {
		h.vote(c, found)
	}
	h.followed = c.Call.Operation == coll.OpBarrier && c.err == nil
	h.handed = false
	if !h.followed || h.votes < handoverVotes {
		return 0
	}
	if h.barriers++; h.barriers%handoverSampleEvery == 0 {
		return 0
	}
	if h.handed = true; h.away {
		return 1
	}
	return handoverYields
}

// vote counts what the call after a Barrier has shown.
func (h *handover) vote(c *Collective, found bool) {
	last := len(c.exchange) - 1
	switch {
	case last < 0 || c.exchange[last].Kind == coll.Send:
		h.votes = max(h.votes-handoverVotes, -handoverVotes)
	case !found:
		h.votes = min(h.votes+1, handoverVotes)
		if h.awaited = c.awaitedBeside(); h.awaited < 0 {
			h.awaited = c.exchange[bits.TrailingZeros64(c.due)].Peer
		}
		h.away = c.mailboxes.peers[h.awaited].elsewhere
	case !h.handed:
		h.votes = max(h.votes-1, -handoverVotes)
	}
}

// over reports whether the rank beside this one that the next call awaits has sent its message.
func (h *handover) over(m *Mailboxes) bool {
	next := m.exchange + 1
	return !h.away &&
		uint32(atomic.LoadUint64(wordAt(m.peers[h.awaited].in, m.slotEnd(next)))) == mailboxNumber(next)
}
