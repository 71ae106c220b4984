package engine

// Busy tells whether messages of a context are still under way or wait here, so that its number cannot be used again.
func (e *Engine) Busy(context uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.requests.underWay() {
		if r.kind == kindSend && r.msg.Context == context || r.kind == kindRecv && r.posted.Context == context {
			return true
		}
	}
	for m := range e.table.Unexpected() {
		if m.Context == context {
			return true
		}
	}
	return false
}

// Release gives back what is kept for a context that is not used any more.
func (e *Engine) Release(context uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.groups, context)
	e.table.Release(context)
}
