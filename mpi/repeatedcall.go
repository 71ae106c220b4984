package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Most programs repeat a short collective again and again. To describe the call anew and compare it with the
// one before took as long as a message does. So the blocking calls that are used most first look whether they
// are a call that was carried out before, and go straight to the mailboxes then.

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

// rememberLocked keeps the key of the call that was carried out last, if it went through the mailboxes.
func (k *collState) rememberLocked(a *collectiveCall) {
	k.keys[k.latest] = callKey{}
	if s := &k.own[k.latest].Schedule; s.Mailboxes && !s.Pulls && a.err == nil {
		k.keys[k.latest] = a.key()
	}
}

// mayRepeat tells whether a call on elements of type T needs no look at the communicator and the type.
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
	err = c.e.RunInMailboxes(x, k.mailboxes.current)
	x.Input, x.Output = nil, nil
	k.mu.Unlock()
	if err != nil {
		return true, c.failColl(key.operation.String(), err)
	}
	return true, nil
}
