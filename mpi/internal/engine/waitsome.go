package engine

// The calls below complete several requests at once: n handles, which at returns. Zero handles are skipped; a
// stale one counts as complete, with ErrRequest. at and take are called under the engine's lock, so they must
// not call the engine. A handle that was passed to take is used up, and at must return the zero Request for
// it from then on. The status belongs to the engine, and is valid until take returns.

// WaitSome waits until at least one of the requests is complete, and passes up to limit complete ones to
// take. It returns their number; 0, at once, if all handles are zero.
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

// TestSome is like WaitSome, but does not wait: it makes one pass if no request is complete. It also reports
// whether any handle is active.
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

// TestAll passes all requests to take if all are complete, else none. It makes at most one pass.
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

// Collect collects requests from the first on, as long as each is complete, or soon completes. It returns
// their number. It ends after one that has failed, whose error it returns. The handles are used up then. st
// gets the statuses; it is as long as hs, or nil. Waitall calls this for all of its requests, so it does as
// little as possible for each.
func (t *Requests) Collect(hs []Request, st []Status) (n int, err error) {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.coalescer.flush() // the messages travel during the loop
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
			return n, nil // with a hook, the caller waits, so that the hook gets the wait
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
