package engine

import "sync"

// failedRanks are the ranks that have failed, as the endpoints have found or were told. A rank that has
// failed at one endpoint has failed at all, once: each endpoint is told in its turn, by a goroutine, since
// who finds a failure has the lock of an endpoint.
type failedRanks struct {
	hub    *Hub
	report func(rank int) // of Config.PeerLost

	mu      sync.Mutex // a leaf in the order of locks
	list    []failedRank
	stopped error // why the rank does no more work

	telling sync.WaitGroup
}

// failedRank is a rank that has failed.
type failedRank struct {
	rank  int
	cause error
	told  bool // PeerFailed was called for it
}

// found takes note of a failure that an endpoint has found, whose lock is held.
func (l *failedRanks) found(e *Engine, rank int, cause error) {
	if !l.add(rank, cause, false) {
		return
	}
	if l.report != nil {
		l.report(rank)
	}
	l.tellOthers(e, func(o *Engine) { o.failures.failPeer(o.peerLocked(rank), cause) })
}

// add adds a rank; false if nothing is new.
func (l *failedRanks) add(rank int, cause error, told bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if f := &l.list[i]; f.rank == rank {
			f.told = f.told || told
			return false
		}
	}
	l.list = append(l.list, failedRank{rank, cause, told})
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
		l.tellOthers(e, func(o *Engine) { o.failLocked(cause) })
	}
}

// tellOthers has a goroutine tell every other endpoint than e, under its lock.
func (l *failedRanks) tellOthers(e *Engine, tell func(o *Engine)) {
	if !l.hub.several.Load() {
		return
	}
	l.telling.Go(func() {
		for o := range l.hub.each() {
			if o == e {
				continue
			}
			o.mu.Lock()
			if o.stopped == nil {
				tell(o)
			}
			o.mu.Unlock()
		}
	})
}

// tell tells a new endpoint of all that it has missed.
func (l *failedRanks) tell(e *Engine) {
	l.mu.Lock()
	list, stopped := append([]failedRank(nil), l.list...), l.stopped
	l.mu.Unlock()
	for _, f := range list {
		if f.told {
			e.peerFailed(f.rank, f.cause)
		} else {
			e.mu.Lock()
			e.failures.failPeer(e.peerLocked(f.rank), f.cause)
			e.mu.Unlock()
		}
	}
	if stopped != nil {
		e.fail(stopped)
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
		e.peerFailed(rank, cause)
	}
}
