package engine

// Wait returns the result of a request when it is done. The handle is used up then: waiting again gives ErrRequest.
func (e *Engine) Wait(h Request) (Status, error) {
	if !h.Active() {
		return Status{}, nil
	}
	e.mu.Lock()
	r := e.requests.find(h)
	if r == nil {
		e.mu.Unlock()
		return Status{}, ErrRequest
	}
	if r.done.Load() {
		st, err := e.collect(r)
		e.mu.Unlock()
		return st, err
	}
	e.mu.Unlock()
	return e.wait(r)
}

// Test makes one pass and returns the result if the request is done.
func (e *Engine) Test(h Request) (Status, bool, error) {
	if !h.Active() {
		return Status{}, true, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.requests.find(h)
	if r == nil {
		return Status{}, false, ErrRequest
	}
	if !r.done.Load() && e.dead == nil {
		e.pass()
	}
	if !r.done.Load() {
		return Status{}, false, nil
	}
	st, err := e.collect(r)
	return st, true, err
}
