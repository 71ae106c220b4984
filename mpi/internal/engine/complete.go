package engine

// Wait returns the result of a request when it is done. The handle is used up then: waiting again gives ErrRequest.
func (e *Engine) Wait(h Request) (Status, error) {
	switch h {
	case Request{}:
		return Status{}, nil
	case Null:
		return nullStatus, nil
	}
	e.mu.Lock()
	r := e.requests.find(h)
	if r == nil {
		e.mu.Unlock()
		return Status{}, errUsed
	}
	if r.completed() {
		st, err := e.collect(h, r)
		e.mu.Unlock()
		return st, err
	}
	e.mu.Unlock()
	return e.waitFor(r, h)
}

// Test makes one pass and returns the result if the request is done.
func (e *Engine) Test(h Request) (Status, bool, error) {
	switch h {
	case Request{}:
		return Status{}, true, nil
	case Null:
		return nullStatus, true, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.requests.find(h)
	if r == nil {
		return Status{}, false, errUsed
	}
	if !r.completed() && e.dead == nil {
		e.pass()
	}
	if !r.completed() {
		return Status{}, false, nil
	}
	st, err := e.collect(h, r)
	return st, true, err
}

// Live tells whether a handle's request has not been collected.
func (e *Engine) Live(h Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.find(h) != nil
}
