package engine

// BeginTask gives a request that completes when EndTask is called: for operations that a goroutine carries
// out. The context is in use until then.
func (e *Engine) BeginTask(context uint32) (Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return Request{}, e.stopped
	}
	r := e.requests.get()
	r.kind, r.observed, r.posted.Context = kindTask, true, context
	return r.handle(), nil
}

// EndTask completes the request of BeginTask, unless the end of the engine has done so.
func (e *Engine) EndTask(h Request, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.requests.find(h); r != nil && !r.completed() {
		e.requests.complete(r, err)
		e.waiters.wakeProbesLocked()
	}
}
