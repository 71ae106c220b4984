package engine

import "github.com/weft-mpi/weft/internal/sys"

// A receive that names its source waits for what comes to one ring. To look there takes a fraction of a pass
// over everything, so whoever waits for such a receive looks there most of the time, and makes a pass now and
// then.

const (
	// looks into the ring between two passes, fewer where there are pauses between them: together they take a
	// few times as long as one of these
	ringLooks = 16
	// rounds of a pass and looks for which attend keeps the lock: a few µs
	attendRounds = 16
	// of so many calls of attend one begins with a pass: where every message is there when it is waited for,
	// nobody would make any
	attendsPerPass = 8
	shortLines     = 4  // of messages that take longer to receive than to send
	maxPause       = 32 // between two looks, in AwaitLoads of some 10 ns
)

// attendLocked looks for the message of a receive that the caller waits for, and tells whether the receive is
// done. It keeps the lock, for a short while and as long as nobody else wants it.
func (w *waiting) attendLocked(r *request) bool {
	w.e.mu.assertHeld()
	if w.ringOfLocked(r) == nil {
		return false
	}
	w.attends++
	for round := range attendRounds {
		// what copies announced messages has given others their turn between two passes
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

// watchLocked looks into the ring of the peer that a receive waits for, a few times, and takes all that is
// there. It tells whether that was anything.
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

// pauseForLocked is how long to pause between two looks into the ring of a peer. A look takes the line of the
// next message away from who is about to write there. A sender of short messages is ahead, as a rule, and is
// not kept from anything by that. One of longer ones is overtaken, and has to take back every line; so while
// many receives wait, this rank leaves it the time to get ahead again.
func (w *waiting) pauseForLocked(p *peer) int {
	w.e.mu.assertHeld()
	if p.ch.LastLines() <= shortLines {
		return 1
	}
	posted, _ := w.e.matching.Lengths()
	return min(max(posted, 1), maxPause)
}

// ringOfLocked is the peer from whose ring the message will come that a receive waits for, if this rank looks
// into it: nil where no such peer is known, and where others make progress.
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
