package engine

import (
	"slices"
	"sync"
)

// NoRank stands for the failed rank where it is not known which has failed.
const NoRank = -1

// failedRanks are the ranks that have failed, as endpoints found or PeerFailed reported. A rank that fails at
// one endpoint fails at all of them, and each is told once. A separate goroutine tells them, because the
// finder holds the lock of its own endpoint and may not take another. Calls that ask for failures do not wait
// for it.
type failedRanks struct {
	hub    *Hub
	report func(rank int) // Config.PeerLost
	onStop func()         // Config.Stopped

	mu      orderedMutex // a leaf in the order of locks
	list    []failedRank
	unnamed bool  // a rank has failed, as others have seen, who did not name it
	stopped error // why the rank does no more work

	telling sync.WaitGroup
}

// failedRank is a rank that has failed.
type failedRank struct {
	rank     int
	cause    error
	reported bool // PeerFailed was called for it
}

// found records a failure that an endpoint has found. The endpoint's lock is held.
func (l *failedRanks) found(e *Engine, rank int, cause error) {
	if !l.add(rank, cause, false) {
		return
	}
	if l.report != nil {
		l.report(rank)
	}
	l.tellOthers(e)
}

// foundUnnamed records that a rank has failed, and that this one does not know which. An endpoint's lock may
// be held.
func (l *failedRanks) foundUnnamed() {
	l.mu.Lock()
	isNew := !l.unnamed && len(l.list) == 0
	l.unnamed = true
	l.mu.Unlock()
	if isNew && l.report != nil {
		l.report(NoRank)
	}
}

// any reports whether a rank is known to have failed, named or not.
func (l *failedRanks) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unnamed || len(l.list) > 0
}

// add adds a rank; false if nothing is new.
func (l *failedRanks) add(rank int, cause error, reported bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if f := &l.list[i]; f.rank == rank {
			f.reported = f.reported || reported
			return false
		}
	}
	l.list = append(l.list, failedRank{rank, cause, reported})
	return true
}

// stop records that an endpoint has stopped, and stops the others. The endpoint's lock is held.
func (l *failedRanks) stop(e *Engine, cause error) {
	l.mu.Lock()
	first := l.stopped == nil
	if first {
		l.stopped = cause
	}
	l.mu.Unlock()
	if !first {
		return
	}
	if l.onStop != nil {
		l.onStop()
	}
	l.tellOthers(e)
}

// tellOthers starts a goroutine that tells every endpoint except e.
func (l *failedRanks) tellOthers(e *Engine) {
	if !l.hub.several.Load() {
		return
	}
	l.telling.Go(func() {
		for o := range l.hub.each() {
			if o != e {
				l.tell(o)
			}
		}
	})
}

// tell passes to an endpoint all failures that it does not know.
func (l *failedRanks) tell(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.tellLocked(e)
}

// tellLocked is tell for a caller that holds the endpoint's lock and makes no pass.
func (l *failedRanks) tellLocked(e *Engine) {
	e.mu.assertHeld()
	l.mu.Lock()
	list, stopped := slices.Clone(l.list), l.stopped
	l.mu.Unlock()
	for _, f := range list {
		e.failures.takeLastLocked(e.peerLocked(f.rank))
		switch {
		case e.stopped != nil:
			return
		case f.reported:
			e.Recovery.reportedLocked(f.rank, f.cause)
		default:
			e.failures.failPeer(e.peerLocked(f.rank), f.cause)
		}
	}
	if stopped != nil {
		e.failLocked(stopped)
	}
}

// SomeRankFailed reports that a rank has failed, as others have seen, who did not name it.
func (h *Hub) SomeRankFailed() { h.failed.foundUnnamed() }

// PeerFailed reports that a rank has failed, as others have seen.
func (h *Hub) PeerFailed(rank int, cause error) {
	if rank == h.rank {
		return
	}
	if h.failed.add(rank, cause, true) && h.failed.report != nil {
		h.failed.report(rank)
	}
	for e := range h.each() {
		h.failed.tell(e)
	}
}
