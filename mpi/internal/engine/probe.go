package engine

// Probe waits for a message that a receive with the same arguments would match, and leaves it there. It ends when scope does, which may
// be nil.
func (e *Engine) Probe(context uint32, src, tag int, scope *Scope) (Status, error) {
	var st Status
	var err error
	var since failures
	e.waitUntil(0, nil, func() bool {
		var ok bool
		st, ok, err = e.look(context, src, tag)
		if err == nil && !ok {
			err = since.end(e, context, src, scope)
		}
		return ok || err != nil
	})
	return st, err
}

// failures are those that a probe knew when it began.
type failures struct {
	known int
	begun bool
}

// end is why a probe that has found nothing is given up: its scope has ended, or, as with a receive, a rank that might have sent what it
// waits for has failed meanwhile.
func (f *failures) end(e *Engine, context uint32, src int, scope *Scope) error {
	if !f.begun {
		f.known, f.begun = len(e.failed), true
	}
	if src == AnySource {
		if err := e.failedSince(f.known, context); err != nil {
			return err
		}
	}
	return scope.Err()
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
	return Status{}, false, e.unanswerable(context, src)
}
