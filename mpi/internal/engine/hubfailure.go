package engine

import (
	"slices"
	"sync"
)

// failedRanks are the ranks that have failed, as the endpoints have found or were told. A rank that has
// failed at one endpoint has failed at all, once: each endpoint is told in its turn, by a goroutine, since
// who finds a failure has the lock of an endpoint. Calls that ask for failures do not wait for that.
type failedRanks struct {
	hub    *Hub
	report func(rank int) // of Config.PeerLost

	mu      orderedMutex // a leaf in the order of locks
	list    []failedRank
	stopped error // why the rank does no more work

	telling sync.WaitGroup
}

// failedRank is a rank that has failed.
type failedRank struct {
	rank     int
	cause    error
	reported bool // PeerFailed was called for it
}

// found takes note of a failure that an endpoint has found, whose lock is held.
func (l *failedRanks) found(e *Engine, rank int, cause error) {
	if !l.add(rank, cause, false) {
		return
	}
	if l.report != nil {
		l.report(rank)
	}
	l.tellOthers(e)
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

// stop takes note that an endpoint has stopped, whose lock is held: the others do too.
func (l *failedRanks) stop(e *Engine, cause error) {
	l.mu.Lock()
	first := l.stopped == nil
	if first {
		l.stopped = cause
	}
	l.mu.Unlock()
	if first {
		l.tellOthers(e)
	}
}

// tellOthers has a goroutine tell every other endpoint than e.
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

// tell tells an endpoint of all that it has missed.
func (l *failedRanks) tell(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.tellLocked(e)
}

// tellLocked is tell, by whoever has the lock of the endpoint.
func (l *failedRanks) tellLocked(e *Engine) {
	e.mu.assertHeld()
	l.mu.Lock()
	list, stopped := slices.Clone(l.list), l.stopped
	l.mu.Unlock()
	for _, f := range list {
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

// PeerFailed tells the rank that another one has failed, as others have seen.
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
