package engine

// Wait returns the result of a request when it is done. The handle is used up then: waiting again gives
// ErrRequest.
func (e *Engine) Wait(h Request) (Status, error) {
	switch h {
	case Request{}:
		return Status{}, nil
	case Null:
		return nullStatus, nil
	}
	start := e.hook.begin(CallWait, 0)
	st, err := e.waitHandle(h)
	e.hook.end(CallWait, start, AnySource, AnyTag, 0)
	return st, err
}

func (e *Engine) waitHandle(h Request) (Status, error) {
	e.mu.Lock()
	r := e.requests.find(h)
	if r == nil {
		e.mu.Unlock()
		return Status{}, errUsed
	}
	if r.completed() || e.waiters.attendLocked(r) {
		st, err := e.requests.collect(h, r)
		e.mu.Unlock()
		return st, err
	}
	if r.kind == kindCollective {
		e.mu.Unlock()
		return e.collectives.wait(r, h)
	}
	e.mu.Unlock()
	return e.waiters.waitFor(r, h)
}

// Test makes progress once and returns the result if the request is done.
func (e *Engine) Test(h Request) (Status, bool, error) { return e.test(h, false) }

// Look is Test, but the handle is not used up.
func (e *Engine) Look(h Request) (Status, bool, error) { return e.test(h, true) }

func (e *Engine) test(h Request, look bool) (Status, bool, error) {
	st, ok, err := e.testOnce(h, look)
	if !ok {
		e.triedInVain()
	}
	return st, ok, err
}

func (e *Engine) testOnce(h Request, look bool) (Status, bool, error) {
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
	r, err := e.requests.polled(h)
	if err != nil || !r.completed() {
		return Status{}, false, err
	}
	if look {
		return r.status, true, r.err
	}
	st, err := e.requests.collect(h, r)
	return st, true, err
}

// Live tells whether a handle's request has not been collected.
func (e *Engine) Live(h Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.find(h) != nil
}
