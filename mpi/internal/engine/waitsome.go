package engine

// The calls below complete several requests at once: n handles, which at gives. Zero handles are left out;
// one that is stale counts as complete, with ErrRequest. at and take are called under the engine's lock, so
// they must not call it. What take is given is used up, and at must give the zero Request for it from then
// on. The status is the engine's, and good until take returns.

// WaitSome waits until at least one of the requests is complete, and gives up to limit of those that are to
// take. It returns how many that were; 0, at once, when all handles are zero.
func (e *Engine) WaitSome(n int, at func(i int) Request, limit int,
	take func(i int, st *Status, err error)) int {
	if e.hook == nil {
		return e.waitSome(n, at, 0, limit, take)
	}
	start := e.hook.begin(CallWait, 0)
	defer e.hook.end(CallWait, start, AnySource, AnyTag, 0)
	first, most := e.drawSome(n, limit)
	return e.waitSome(n, at, first, most, take)
}

func (e *Engine) waitSome(n int, at func(i int) Request, first, limit int,
	take func(i int, st *Status, err error)) int {
	taken := 0
	e.waiters.waitUntil(n, at, func() bool {
		var active bool
		taken, active = e.requests.collectSome(n, at, first, limit, take)
		return taken > 0 || !active
	})
	return taken
}

// TestSome makes progress once if none is complete, and is like WaitSome otherwise, but does not wait. It
// tells too whether any handle is active.
func (e *Engine) TestSome(n int, at func(i int) Request, limit int,
	take func(i int, st *Status, err error)) (taken int, active bool) {
	if e.hook == nil {
		return e.testSome(n, at, 0, limit, take)
	}
	start := e.hook.begin(CallTest, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	first, most := e.drawSome(n, limit)
	return e.testSome(n, at, first, most, take)
}

func (e *Engine) testSome(n int, at func(i int) Request, first, limit int,
	take func(i int, st *Status, err error)) (taken int, active bool) {
	e.mu.Lock()
	taken, active = e.requests.collectSome(n, at, first, limit, take)
	if taken == 0 && active && e.stopped == nil {
		e.progress.poll()
		taken, active = e.requests.collectSome(n, at, first, limit, take)
	}
	e.mu.Unlock()
	if taken == 0 {
		e.triedInVain()
	}
	return taken, active
}

// TestAll makes progress once if not all of the requests are complete, and gives all to take if they are
// then, none if not.
func (e *Engine) TestAll(n int, at func(i int) Request, take func(i int, st *Status, err error)) bool {
	start := e.hook.begin(CallTest, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	done := e.testAll(n, at, take)
	if !done {
		e.triedInVain()
	}
	return done
}

func (e *Engine) testAll(n int, at func(i int) Request, take func(i int, st *Status, err error)) bool {
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
	e.requests.collectSome(n, at, 0, n, take)
	return true
}

// Collect gives the results of requests from the first on, as long as each is complete, or is so soon: it
// returns how many those are. It ends with one that has failed, whose error it returns. The handles are used
// up then. st gets the statuses; it is as long as hs, or nil. Waitall does this for all of its requests, so
// as little as can be happens for each.
func (e *Engine) Collect(hs []Request, st []Status) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.coalescer.flush() // the messages travel while one counts
	for n < len(hs) && err == nil {
		h := hs[n]
		var into *Status
		if st != nil {
			into = &st[n]
		}
		if h == (Request{}) {
			n++
			continue
		}
		r := e.requests.find(h)
		if r == nil {
			err = e.requests.collectNull(h, into)
			n++
			continue
		}
		if !r.completed() && (e.hook != nil || !e.waiters.attendLocked(r)) {
			return n, nil // a hook is told of waits
		}
		if into != nil {
			*into = r.status
		}
		err = r.err
		e.requests.release(h, r)
		n++
	}
	return n, err
}
