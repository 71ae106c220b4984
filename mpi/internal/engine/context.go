package engine

import "github.com/weft-mpi/weft/internal/contextid"

// contextSet is a set of context ids. It has a bit for each: programs free many communicators, and
// consecutive ids share a word.
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

// FreeContext ends the use of a context: no operation will begin there. Operations under way go on to their
// end. When none of them can post a receive any more, the unexpected messages of the context are dropped, and
// so are those that arrive later: their sends complete. Messages that a matched probe has taken stay.
func (e *Engine) FreeContext(context uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unexpected.freedContexts.add(context)
	e.unexpected.discardFreed(context)
}

// abandoned reports whether a context was freed, and no operation is left that may post a receive there: its
// unexpected messages will never be received.
func (u *unexpectedMessages) abandoned(context uint32) bool {
	return u.freedContexts.has(context) && !u.e.postsReceivesLocked(context)
}

// postsReceivesLocked reports whether an operation is under way that may post receives in a context.
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
	return e.MailboxCalls.settingUpLocked(context)
}

// discardFreed drops the unexpected messages of a context if it is abandoned. It is called at the end of
// every operation that postsReceivesLocked counts.
func (u *unexpectedMessages) discardFreed(context uint32) {
	if u.abandoned(context) {
		u.discardWhere(func(c uint32) bool { return c == context })
	}
}

// discardWhere drops the unexpected messages of the contexts for which of is true.
func (u *unexpectedMessages) discardWhere(of func(context uint32) bool) {
	var waiting []*unexpectedMessage
	for m := range u.e.matching.Unexpected() {
		if of(m.Context) {
			waiting = append(waiting, m.Value)
		}
	}
	for _, a := range waiting {
		if u.e.matching.RemoveUnexpected(&a.match) { // false if dropping an earlier one failed its peer
			u.discard(a)
		}
	}
}

// discard drops a message that was removed from the table: its send completes.
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

// newDiscardReceiveLocked returns a receive without a buffer, which drops its message. The caller detaches it
// when it has got the message.
func (v *Recvs) newDiscardReceiveLocked(context uint32, source int, tag int32) *request {
	v.e.mu.assertHeld()
	r := v.e.Requests.get()
	r.kind, r.rank = kindRecv, source
	r.contiguous(nil)
	r.posted.Context, r.posted.Source, r.posted.Tag = context, int32(source), tag
	return r
}

// ContextInUse reports whether a context id cannot be used again yet, because operations are under way or
// messages wait there.
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
	return e.MailboxCalls.settingUpLocked(context)
}

// ReleaseContext frees what is stored for a context that is no longer used.
func (e *Engine) ReleaseContext(context uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failures.groups, context)
	e.matching.Release(context)
}
