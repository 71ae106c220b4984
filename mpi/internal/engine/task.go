package engine

// BeginTask gives a request that completes when EndTask is called: for operations that a goroutine carries
// out. The context is in use until then.
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

// EndTask completes the request of BeginTask, unless the end of the engine has done so.
func (t *Requests) EndTask(h Request, err error) {
	e := t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := t.find(h); r != nil && !r.completed() {
		t.complete(r, err)
		e.waiting.wakeConditionsLocked()
	}
}
