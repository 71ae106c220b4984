package engine

// Probe waits for a message that a receive with the same arguments would match, and leaves it there. It ends when scope does, which may
// be nil.
func (e *Engine) Probe(context uint32, src, tag int, scope *Scope) (Status, error) {
	var st Status
	var err error
	e.waitUntil(0, nil, func() bool {
		var ok bool
		st, ok, err = e.look(context, src, tag)
		if err == nil && !ok {
			err = scope.Err()
		}
		return ok || err != nil
	})
	return st, err
}

// Iprobe makes one pass and tells whether there is such a message.
func (e *Engine) Iprobe(context uint32, src, tag int) (Status, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st, ok, err := e.look(context, src, tag)
	if !ok && err == nil {
		e.pass()
		st, ok, err = e.look(context, src, tag)
	}
	return st, ok, err
}

func (e *Engine) look(context uint32, src, tag int) (Status, bool, error) {
	if m := e.table.Probe(context, int32(src), int32(tag)); m != nil {
		return Status{Source: int(m.Source), Tag: int(m.Tag), Bytes: m.Value.bytes, Elem: 1}, true, nil
	}
	if e.dead != nil {
		return Status{}, false, e.dead
	}
	if src >= 0 {
		if p := e.peers[src]; p != nil && p.state == peerFailed {
			return Status{}, false, p.cause
		}
	}
	return Status{}, false, nil
}
