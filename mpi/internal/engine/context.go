package engine

import "github.com/weft-mpi/weft/internal/contextid"

// contextSet is the set of contexts whose communicators have been freed here. It has a bit for each context:
// programs free many communicators, and contexts that follow one another share a word.
type contextSet map[uint32]uint64

func (s contextSet) has(context uint32) bool { return len(s) > 0 && s[context/64]>>(context%64)&1 != 0 }

func (s contextSet) add(context uint32) { s[context/64] |= 1 << (context % 64) }

func (s contextSet) remove(context uint32) {
	if word := s[context/64] &^ (1 << (context % 64)); word != 0 {
		s[context/64] = word
	} else {
		delete(s, context/64)
	}
}

// FreeContext ends the use of a context: no operation will begin there. What is under way ends first. When
// nothing can post another receive there, the messages that no receive has matched are released, and so are
// those that come later: their sends complete. Messages that a matched probe has taken stay.
func (e *Engine) FreeContext(context uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unexpected.freedContexts.add(context)
	e.unexpected.discardFreed(context)
}

// abandoned tells whether no receive will be posted in a context any more, since it has been freed: an
// unexpected message there will never be received.
func (u *unexpectedMessages) abandoned(context uint32) bool {
	return u.freedContexts.has(context) && !u.e.postsReceivesLocked(context)
}

// postsReceivesLocked tells whether an operation is under way that may post receives in a context.
func (e *Engine) postsReceivesLocked(context uint32) bool {
	e.mu.assertHeld()
	for _, c := range e.Collectives.active {
		if c.Context == context {
			return true
		}
	}
	for _, g := range e.Recovery.groupCalls {
		if g.Context == context {
			return true
		}
	}
	return false
}

// discardFreed drops the messages of a context that is abandoned. It is called at the end of everything that
// postsReceives counts.
func (u *unexpectedMessages) discardFreed(context uint32) {
	if u.abandoned(context) {
		u.discardWhere(func(c uint32) bool { return c == context })
	}
}

// discardWhere drops the messages of some contexts that no receive has matched.
func (u *unexpectedMessages) discardWhere(of func(context uint32) bool) {
	var waiting []*unexpectedMessage
	for m := range u.e.matching.Unexpected() {
		if of(m.Context) {
			waiting = append(waiting, m.Value)
		}
	}
	for _, a := range waiting {
		if u.e.matching.RemoveUnexpected(&a.match) { // not if its peer was given up for one before it
			u.discard(a)
		}
	}
}

// discard releases a message that was taken out of the table: its send completes.
func (u *unexpectedMessages) discard(a *unexpectedMessage) {
	r := u.e.Recvs.newDiscardReceiveLocked(a.match.Context, int(a.match.Source), a.match.Tag)
	u.e.Recvs.deliverUnexpectedLocked(r, a)
	u.e.Requests.detach(r)
}

// ReuseContext ends FreeContext: another communicator begins to use the context.
func (e *Engine) ReuseContext(context uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unexpected.freedContexts.remove(context)
	if contextid.Communicator(context) == context {
		e.Recovery.reuse(context)
	}
}

// newDiscardReceiveLocked gives a receive without a buffer, which takes a message to drop it. Its result is
// nobody's; it has to be detached when it has got its message.
func (v *Recvs) newDiscardReceiveLocked(context uint32, source int, tag int32) *request {
	v.e.mu.assertHeld()
	r := v.e.Requests.get()
	r.kind, r.rank = kindRecv, source
	r.contiguous(nil)
	r.posted.Context, r.posted.Source, r.posted.Tag = context, int32(source), tag
	return r
}

// ContextInUse tells whether operations in a context are still under way, or messages wait here, so that its
// number cannot be used again.
func (e *Engine) ContextInUse(context uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.Requests.underWay() {
		if of, ok := r.context(); ok && of == context {
			return true
		}
	}
	for _, g := range e.Recovery.groupCalls {
		if g.Context == context {
			return true
		}
	}
	for m := range e.matching.Unexpected() {
		if m.Context == context {
			return true
		}
	}
	return false
}

// ReleaseContext gives back what is kept for a context that is not used any more.
func (e *Engine) ReleaseContext(context uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failures.groups, context)
	e.matching.Release(context)
}
