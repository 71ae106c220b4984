package engine

// Wait waits for a request and returns its result. The handle is used up then: waiting again returns
// ErrRequest.
func (t *Requests) Wait(h Request) (Status, error) {
	e := t.e
	switch h {
	case Request{}:
		return Status{}, nil
	case Null:
		return nullStatus, nil
	}
	start := e.hook.begin(CallWait, 0)
	st, err := t.waitHandle(h)
	e.hook.end(CallWait, start, AnySource, AnyTag, 0)
	return st, err
}

func (t *Requests) waitHandle(h Request) (Status, error) {
	e := t.e
	e.mu.Lock()
	r := t.find(h)
	if r == nil {
		e.mu.Unlock()
		return Status{}, errUsed
	}
	if r.completed() || e.waiting.attendLocked(r) {
		st, err := t.collect(h, r)
		e.mu.Unlock()
		return st, err
	}
	if r.kind == kindCollective {
		e.mu.Unlock()
		return e.Collectives.wait(r, h)
	}
	e.mu.Unlock()
	return e.waiting.waitFor(r, h)
}

// Test returns the result of a request if it is complete. It makes at most one pass.
func (t *Requests) Test(h Request) (Status, bool, error) { return t.test(h, false) }

// Look is Test, but the handle is not used up.
func (t *Requests) Look(h Request) (Status, bool, error) { return t.test(h, true) }

func (t *Requests) test(h Request, look bool) (Status, bool, error) {
	e := t.e
	st, ok, err := t.testOnce(h, look)
	if !ok {
		e.noteUnsuccessful()
	}
	return st, ok, err
}

func (t *Requests) testOnce(h Request, look bool) (Status, bool, error) {
	e := t.e
	switch h {
	case Request{}:
		return Status{}, true, nil
	case Null:
		return nullStatus, true, nil
	}
	start := e.hook.begin(CallTest, 0)
	defer e.hook.end(CallTest, start, AnySource, AnyTag, 0)
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := t.findAfterPass(h)
	if err != nil || !r.completed() {
		return Status{}, false, err
	}
	if look {
		return r.status, true, r.err
	}
	st, err := t.collect(h, r)
	return st, true, err
}

// Live reports whether a handle's request has not been collected.
func (t *Requests) Live(h Request) bool {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	return t.find(h) != nil
}
