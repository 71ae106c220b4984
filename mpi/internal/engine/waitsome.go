package engine

// The calls below complete several requests at once: n handles, which at gives. Zero handles are left out;
// one that is stale counts as complete, with ErrRequest. at and take are called under the engine's lock, so
// they must not call it. What take is given is used up, and at must give the zero Request for it from then
// on. The status is the engine's, and good until take returns.

// WaitSome waits until at least one of the requests is complete, and gives up to limit of those that are to
// take. It returns how many that were; 0, at once, when all handles are zero.
func (t *Requests) WaitSome(n int, at func(i int) Request, limit int,
	take func(i int, st *Status, err error)) int {
	e := t.e
	if e.hook == nil {
		return t.waitSome(n, at, 0, limit, take)
	}
	start := e.hook.begin(CallWait, 0)
	defer e.hook.end(CallWait, start, AnySource, AnyTag, 0)
	first, most := e.drawSome(n, limit)
	return t.waitSome(n, at, first, most, take)
}

func (t *Requests) waitSome(n int, at func(i int) Request, first, limit int,
	take func(i int, st *Status, err error)) int {
	e := t.e
	taken := 0
	e.waiting.waitUntil(n, at, func() bool {
		var active bool
		taken, active = t.collectSome(n, at, first, limit, take)
		return taken > 0 || !active
	})
	return taken
}

// TestSome makes progress once if none is complete, and is like WaitSome otherwise, but does not wait. It
// tells too whether any handle is active.
func (t *Requests) TestSome(n int, at func(i int) Request, limit int,
	take func(i int, st *Status, err error)) (taken int, active bool) {
	e := t.e
	if e.hook == nil {
		return t.testSome(n, at, 0, limit, take)
	}
	start := e.hook.begin(CallTest, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	first, most := e.drawSome(n, limit)
	return t.testSome(n, at, first, most, take)
}

func (t *Requests) testSome(n int, at func(i int) Request, first, limit int,
	take func(i int, st *Status, err error)) (taken int, active bool) {
	e := t.e
	e.mu.Lock()
	taken, active = t.collectSome(n, at, first, limit, take)
	if taken == 0 && active && e.stopped == nil {
		e.progress.poll()
		taken, active = t.collectSome(n, at, first, limit, take)
	}
	e.mu.Unlock()
	if taken == 0 {
		e.noteUnsuccessful()
	}
	return taken, active
}

// TestAll makes progress once if not all of the requests are complete, and gives all to take if they are
// then, none if not.
func (t *Requests) TestAll(n int, at func(i int) Request, take func(i int, st *Status, err error)) bool {
	e := t.e
	start := e.hook.begin(CallTest, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	done := t.testAll(n, at, take)
	if !done {
		e.noteUnsuccessful()
	}
	return done
}

func (t *Requests) testAll(n int, at func(i int) Request, take func(i int, st *Status, err error)) bool {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if !t.allDone(n, at) {
		if e.stopped == nil {
			e.progress.poll()
		}
		if !t.allDone(n, at) {
			return false
		}
	}
	t.collectSome(n, at, 0, n, take)
	return true
}

// Collect gives the results of requests from the first on, as long as each is complete, or is so soon: it
// returns how many those are. It ends with one that has failed, whose error it returns. The handles are used
// up then. st gets the statuses; it is as long as hs, or nil. Waitall does this for all of its requests, so
// as little as can be happens for each.
func (t *Requests) Collect(hs []Request, st []Status) (n int, err error) {
	e := t.e
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
		r := t.find(h)
		if r == nil {
			err = t.collectNull(h, into)
			n++
			continue
		}
		if !r.completed() && (e.hook != nil || !e.waiting.attendLocked(r)) {
			return n, nil // a hook is told of waits
		}
		if into != nil {
			*into = r.status
		}
		err = r.err
		t.release(h, r)
		n++
	}
	return n, err
}
