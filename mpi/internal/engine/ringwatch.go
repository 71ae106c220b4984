package engine

import "github.com/weft-mpi/weft/internal/sys"

// A receive with a given source waits for messages in one ring. A look into that ring takes a fraction of the
// time of a pass, so a goroutine that waits for such a receive mostly polls the ring, and makes a pass now
// and then.

const (
	// looks into the ring between two passes, fewer with pauses between them: together they take a few times
	// as long as a pass
	ringLooks = 16
	// rounds of a pass and looks for which attendLocked holds the lock: a few µs
	attendRounds = 16
	// one in so many calls of attendLocked begins with a pass: if every message is there before the wait,
	// nothing else would make one
	attendsPerPass = 8
	// messages of at most this many 64-byte lines of the ring are short: longer ones take longer to receive
	// than to send
	shortLines = 4
	maxPause   = 32 // between two looks, in AwaitLoads of some 10 ns
)

// attendLocked polls for the message of a receive for which the caller waits, and reports whether the receive
// is complete. It holds the lock, for a short while and only until another goroutine wants it.
func (w *waiting) attendLocked(r *request) bool {
	w.e.mu.assertHeld()
	if w.ringOfLocked(r) == nil {
		return false
	}
	w.attends++
	for round := range attendRounds {
		// after a copy of announced messages, other peers get a pass first
		if round > 0 || w.attends%attendsPerPass == 0 || w.e.Recvs.copyBudget < copyBudgetPerPass {
			w.e.progress.poll()
		}
		if w.watchLocked(r); r.completed() {
			return true
		}
		if w.e.mu.wanted() {
			return false
		}
	}
	return false
}

// watchLocked looks a few times into the ring of the peer for which a receive waits, and takes all messages
// there. It reports whether there were any.
func (w *waiting) watchLocked(r *request) bool {
	w.e.mu.assertHeld()
	p := w.ringOfLocked(r)
	if p == nil {
		return false
	}
	pause := w.pauseForLocked(p)
	for left := ringLooks; left > 0; left -= pause {
		if p.ch.Ready() {
			outer := w.e.Collectives.enterLocked()
			w.e.Recvs.drainLocked(p)
			w.e.Collectives.leaveLocked(outer)
			return true
		}
		if w.e.mu.wanted() {
			return false
		}
		for range pause {
			sys.AwaitLoads()
		}
	}
	return false
}

// pauseForLocked returns how long to pause between two looks into a peer's ring. A look takes the cache line
// of the next message from the sender that is about to write there. A sender of short messages is usually
// ahead of the reader and is not slowed down. With longer messages the reader catches up, and the sender must
// fetch each line back; so while many receives are posted, the reader pauses to let the sender get ahead.
func (w *waiting) pauseForLocked(p *peer) int {
	w.e.mu.assertHeld()
	if p.ch.LastLines() <= shortLines {
		return 1
	}
	posted, _ := w.e.matching.Lengths()
	return min(max(posted, 1), maxPause)
}

// ringOfLocked returns the peer in whose ring the message of a receive will arrive, if this rank polls that
// ring. It returns nil if no such peer is known, or if a completion handler makes the passes.
func (w *waiting) ringOfLocked(r *request) *peer {
	w.e.mu.assertHeld()
	if r.completed() || r.kind != kindRecv || r.rank < 0 || r.openTransfers > 0 || w.spinTime == 0 ||
		w.e.completionHandler.active() || w.e.stopped != nil {
		return nil
	}
	if p := w.e.peers[r.rank]; p != nil && p.polled && p.state == peerOpen {
		return p
	}
	return nil
}
