package engine

// The calls below complete several requests at once: n handles, which at gives. Zero handles are left out;
// one that is stale counts as complete, with ErrRequest. at and take are called under the engine's lock, so
// they must not call it. What take is given is used up, and at must give the zero Request for it from then
// on. The status is the engine's, and good until take returns.

// WaitSome waits until at least one of the requests is complete, and gives up to limit of those that are to
// take. It returns how many that were; 0, at once, when all handles are zero.
func (e *Engine) WaitSome(n int, at func(i int) Request, limit int,
	take func(i int, st *Status, err error)) int {
	start := e.hook.begin(CallWait, AnySource, AnyTag, 0)
	defer e.hook.end(CallWait, start, AnySource, AnyTag, 0)
	taken := 0
	e.waiters.waitUntil(n, at, func() bool {
		var active bool
		taken, active = e.requests.collectSome(n, at, limit, take)
		return taken > 0 || !active
	})
	return taken
}

// TestSome makes progress once if none is complete, and is like WaitSome otherwise, but does not wait. It
// tells too whether any handle is active.
func (e *Engine) TestSome(n int, at func(i int) Request, limit int,
	take func(i int, st *Status, err error)) (taken int, active bool) {
	start := e.hook.begin(CallTest, AnySource, AnyTag, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	e.mu.Lock()
	defer e.mu.Unlock()
	taken, active = e.requests.collectSome(n, at, limit, take)
	if taken == 0 && active && e.stopped == nil {
		e.progress.poll()
		taken, active = e.requests.collectSome(n, at, limit, take)
	}
	return taken, active
}

// TestAll makes progress once if not all of the requests are complete, and gives all to take if they are
// then, none if not.
func (e *Engine) TestAll(n int, at func(i int) Request, take func(i int, st *Status, err error)) bool {
	start := e.hook.begin(CallTest, AnySource, AnyTag, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.requests.allDone(n, at) {
		if e.stopped == nil {
			e.progress.poll()
		}
		if !e.requests.allDone(n, at) {
			return false
		}
	}
	e.requests.collectSome(n, at, n, take)
	return true
}

// Between LockForCollect and UnlockAfterCollect the caller has the engine's lock: he calls CollectLocked and
// nothing else of the engine, and does not wait for anything else. It is what Waitall does for each of its
// requests, so there is as little as can be between them.

// LockForCollect takes the lock. What is coalesced goes out: the messages travel while one counts.
func (e *Engine) LockForCollect() {
	e.mu.Lock()
	e.coalescer.flush()
}

// CollectLocked gives the result of a request if it is complete, or is so soon: its status, if into is not
// nil, and its error. The handle is used up then.
func (e *Engine) CollectLocked(h Request, into *Status) (done bool, err error) {
	r := e.requests.find(h)
	if r == nil {
		return e.requests.collectNull(h, into)
	}
	if !r.completed() && (e.hook != nil || !e.waiters.attend(r)) {
		return false, nil // a hook is told of waits
	}
	if into != nil {
		*into = r.status
	}
	err = r.err
	e.requests.release(h, r)
	return true, err
}

// UnlockAfterCollect gives the lock back.
func (e *Engine) UnlockAfterCollect() { e.mu.Unlock() }
