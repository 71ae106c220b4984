package engine

// Cancel withdraws an operation that has had no effect yet: a receive that has matched nothing, a send of which nothing has left. Its
// request is complete then, and Status.Cancelled is set. What is under way completes as if Cancel had not been called; if it is a receive,
// Cancel returns when nothing more is placed in its buffer. The request is to be waited for in any case.
func (e *Engine) Cancel(h Request) error {
	if h == (Request{}) || h == Null {
		return nil
	}
	e.mu.Lock()
	r := e.requests.find(h)
	if r == nil {
		e.mu.Unlock()
		return errUsed
	}
	if !r.completed() && e.withdraw(r) {
		r.status.Cancelled = true
		e.complete(r, nil)
	}
	underWay := r.kind == kindRecv && !r.completed()
	e.mu.Unlock()
	if underWay {
		at := func(int) Request { return h }
		e.waitUntil(1, at, func() bool { return e.anyDone(1, at) })
	}
	return nil
}

// withdraw takes an operation that has had no effect yet out of wherever it waits; the caller completes it. It reports false, and does
// nothing, if the operation is under way.
func (e *Engine) withdraw(r *request) bool {
	switch {
	case r.kind == kindRecv:
		return e.table.Withdraw(&r.posted)
	case r.filed != nil:
		a := r.filed
		if !e.table.Take(&a.match) {
			return false
		}
		e.discard(a)
		return true
	case r.peer != nil:
		return r.peer.unqueue(r)
	}
	return false
}

// unqueue takes a send out of the queue in which it waits for its peer.
func (p *peer) unqueue(r *request) bool {
	if r.msg.Begun() {
		return false
	}
	for i := p.head; i < len(p.queue); i++ {
		if p.queue[i] == r {
			copy(p.queue[p.head+1:], p.queue[p.head:i])
			p.dequeue()
			return true
		}
	}
	return false
}
