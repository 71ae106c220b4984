package engine

// Abandon gives up a request that the caller will not wait for, because what it was part of has failed. A receive is
// taken back; one whose message is already being read is waited for, since its buffer is not quiet before. A send goes on by
// itself: its memory is only read.
func (e *Engine) Abandon(h Request) {
	e.mu.Lock()
	r := e.requests.find(h)
	switch {
	case r == nil:
	case r.completed() || r.kind == kindRecv && e.table.Withdraw(&r.posted):
		e.collect(h, r)
	case r.kind == kindSend:
		r.orphan, r.minded = true, true
	default:
		e.mu.Unlock()
		e.wait(r)
		return
	}
	e.mu.Unlock()
}
