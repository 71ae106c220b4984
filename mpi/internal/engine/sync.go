package engine

// A synchronous send is always announced, small or empty ones too: the FIN that ends it comes only after the match.

// Ssend sends buf and returns when its receive has started, and buf is the caller's again.
func (e *Engine) Ssend(context uint32, buf []byte, dst, tag int) error {
	e.mu.Lock()
	if e.dead != nil {
		defer e.mu.Unlock()
		return e.dead
	}
	r := e.startSync(context, buf, dst, tag, false)
	e.mu.Unlock()
	_, err := e.wait(r)
	return err
}

// Issend begins a synchronous send. buf must stay as it is until the request is complete.
func (e *Engine) Issend(context uint32, buf []byte, dst, tag int) (Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return Request{}, e.dead
	}
	return e.startSync(context, buf, dst, tag, e.holds(dst, len(buf))).handle(), nil
}

func (e *Engine) startSync(context uint32, buf []byte, dst, tag int, more bool) *request {
	r := e.requests.get()
	r.contiguous(buf)
	r.sync = true
	e.startSend(r, envelope{Context: context, Tag: int32(tag)}, dst, more)
	return r
}
