package engine

// BeginTask returns a request that completes when EndTask is called, for an operation that a goroutine
// executes. The context is in use until then.
func (t *Requests) BeginTask(context uint32) (Request, error) {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return Request{}, e.stopped
	}
	r := t.get()
	r.kind, r.observed, r.posted.Context = kindTask, true, context
	return r.handle(), nil
}

// EndTask completes the request of BeginTask, unless the engine has stopped and done so.
func (t *Requests) EndTask(h Request, err error) {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := t.find(h); r != nil && !r.completed() {
		t.complete(r, err)
		e.waiting.wakeConditionsLocked()
	}
}
