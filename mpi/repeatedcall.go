package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Most programs repeat a short collective again and again. To describe the call anew and compare it with the
// one before took as long as a message does. So the blocking calls that are used most first look whether they
// are a call that was carried out before, and go straight to the mailboxes then.

// runOwnLocked carries out a call with what its communicator keeps for that.
func (a *collectiveCall) runOwnLocked(k *collState) error {
	c := a.comm
	if a.compares() { // first, as to prepare mailboxes is a collective, too
		if err := a.compare(); err != nil {
			a.skipLocked(k)
			return err
		}
	}
	if err := a.prepareMailboxesLocked(k); err != nil {
		return err
	}
	x := &k.own[k.latest]
	repeats := x.Call.Repeats(&a.call)
	if !repeats {
		k.latest = 1 - k.latest
		x = &k.own[k.latest]
		repeats = x.Call.Repeats(&a.call)
	}
	if !repeats || !a.repeatable() {
		a.planOwnLocked(k)
	}
	a.fill(x, engine.CollectiveTag(false, k.number.Add(1), a.call.Operation, x.Signature))
	if x.Beside = nil; !x.Schedule.Mailboxes && a.call.Mailbox > 0 {
		x.Beside = k.mailboxes.current
	}
	if x.Schedule.Mailboxes {
		a.err = c.e.Collectives.RunInMailboxes(x, k.mailboxes.current)
	} else {
		a.err = c.e.Collectives.Run(x)
	}
	x.Input, x.Output, x.Outgoing, x.Incoming = nil, nil, nil, nil
	k.rememberLocked(a)
	a.growMailboxesLocked(k)
	return a.err
}

// repeatable reports whether an equal call has the same schedule: what a pointer leads to may have changed.
func (a *collectiveCall) repeatable() bool {
	return a.call.Send == nil && a.call.Recv == nil && a.call.Neighbors == nil
}

// planOwnLocked writes the schedule of a call into the latest of what its communicator keeps.
func (a *collectiveCall) planOwnLocked(k *collState) {
	k.used[k.latest], k.keys[k.latest] = a.plan(&k.own[k.latest]), callKey{}
}

// callKey is what tells a valid blocking call from all others on its communicator that have a schedule of
// their own. No call has the zero key.
type callKey struct {
	operation coll.Operation
	elem      int // bytes of an element
	count     int
	root      int
	op        *engine.Operator
}

// key is the key of a call; zero if its schedule serves no other.
func (a *collectiveCall) key() callKey {
	if !a.repeatable() || a.call.InPlace {
		return callKey{}
	}
	return callKey{a.call.Operation, a.call.ElemSize, a.call.Count, a.call.Root, a.op}
}

// rememberLocked keeps the key of the call that was carried out last, if it went through the mailboxes, and
// would not go another way through larger ones: those are prepared when enough such calls have been counted.
func (k *collState) rememberLocked(a *collectiveCall) {
	k.keys[k.latest] = callKey{}
	if k.own[k.latest].Schedule.Mailboxes && a.err == nil &&
		!a.call.OutgrowsMailboxes(engine.MailboxBytes(a.call.Size)) {
		k.keys[k.latest] = a.key()
	}
}

// mayRepeat reports whether a call on elements of type T needs no look at the communicator and the type.
func mayRepeat[T any](c *Comm) bool {
	return lastKnown[T]() && c != nil && c.commState != nil && c.canceller == nil && !c.inFull.Load()
}

// repeat carries out a call that mayRepeat if one with its key was carried out before; false if not.
func (c *Comm) repeat(key callKey, in, out []byte) (done bool, err error) {
	k := &c.coll
	if !k.mu.TryLock() {
		return false, nil
	}
	if k.keys[k.latest] != key {
		if k.keys[1-k.latest] != key {
			k.mu.Unlock()
			return false, nil
		}
		k.latest = 1 - k.latest
	}
	x := &k.own[k.latest]
	x.Tag, x.Canceller = engine.CollectiveTag(false, k.number.Add(1), key.operation, x.Signature), nil
	x.Input, x.Output = in, out
	err = c.e.Collectives.RunInMailboxes(x, k.mailboxes.current)
	x.Input, x.Output = nil, nil
	k.mu.Unlock()
	if err != nil {
		return true, c.failColl(key.operation.String(), err)
	}
	return true, nil
}
