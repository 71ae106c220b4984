package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Most programs repeat a short collective many times. Building the description of the call and comparing it
// with the previous one costs as much as a message. So the most common blocking calls first check whether
// they repeat one of the last two that went through the mailboxes, and then reuse its schedule at once.

// runOwnLocked executes a call with one of k.own, and reuses its schedule if the call repeats one of the last
// two.
func (a *collectiveCall) runOwnLocked(k *collState) error {
	c := a.comm
	if a.compares() { // first, as the set-up of mailboxes is a collective too
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
	a.fill(x, engine.CollectiveTag(false, k.number.nextLocked(), a.call.Operation, x.Signature))
	if x.WatchedMailboxes = nil; !x.Schedule.Mailboxes && a.call.Mailbox > 0 {
		x.WatchedMailboxes = k.mailboxes.current
	}
	if x.Schedule.Mailboxes {
		a.err = c.e.MailboxCalls.Run(x, k.mailboxes.current)
	} else {
		a.err = c.e.Collectives.Run(x)
	}
	x.Input, x.Output, x.Outgoing, x.Incoming = nil, nil, nil, nil
	k.rememberLocked(a)
	a.growMailboxesLocked(k)
	return a.err
}

// repeatable reports whether an equal call has the same schedule. It may not if the call has pointers, whose
// targets may have changed.
func (a *collectiveCall) repeatable() bool {
	return a.call.Send == nil && a.call.Recv == nil && a.call.Neighbors == nil
}

// planOwnLocked builds the schedule of a call in the latest of k.own.
func (a *collectiveCall) planOwnLocked(k *collState) {
	k.used[k.latest], k.keys[k.latest] = a.plan(&k.own[k.latest]), callKey{}
}

// callKey identifies a valid blocking call among the calls on its communicator with different schedules. No
// call has the zero key.
type callKey struct {
	operation coll.Operation
	elem      int // size of an element
	count     int
	root      int
	op        *engine.Operator
}

// rememberLocked stores the key of the call that was just executed, if the call used the mailboxes and would
// use the same algorithm with larger ones. Other calls are counted, because enough of them make the ranks set
// up larger mailboxes, so they must not take the shortcut. Nor may a call whose schedule no other can reuse.
func (k *collState) rememberLocked(a *collectiveCall) {
	key := &k.keys[k.latest]
	if !k.own[k.latest].Schedule.Mailboxes || a.err != nil || !a.repeatable() || a.call.InPlace ||
		a.call.OutgrowsMailboxes(engine.MailboxBytes(a.call.Size)) {
		*key = callKey{}
		return
	}
	// Field by field: a copy of the whole would be loaded in larger parts than were just stored, which waits
	// until the stores are done, and with them that of the call's message.
	key.operation, key.elem, key.count = a.call.Operation, a.call.ElemSize, a.call.Count
	key.root, key.op = a.call.Root, a.op
}

// mayRepeat reports whether the communicator and the element type T need no checks, so that repeat may be
// called.
func mayRepeat[T any](c *Comm) bool {
	return lastKnown[T]() && c != nil && c.commState != nil && c.canceller == nil && !c.slowPath.Load()
}

// repeatReduction is repeat of a reduction without a root, from one vector to another.
func repeatReduction[T any](c *Comm, o coll.Operation, in, out []T, op Op[T]) (done bool, err error) {
	if !mayRepeat[T](c) || len(in) != len(out) || !disjoint(memory(in), memory(out)) {
		return false, nil
	}
	key := callKey{operation: o, elem: sizeOf[T](), count: len(in), op: op.operator}
	return c.repeat(key, bytesIn(in), bytesIn(out))
}

// repeat executes a call if it repeats one of the last two; it returns false if it does not.
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
	x.Tag, x.Canceller = engine.CollectiveTag(false, k.number.nextLocked(), key.operation, x.Signature), nil
	x.Input, x.Output = in, out
	err = c.e.MailboxCalls.Run(x, k.mailboxes.current)
	x.Input, x.Output = nil, nil
	if k.mailboxes.renewed {
		k.renewMailboxesLocked(c, &x.Call)
	}
	k.mu.Unlock()
	if err != nil {
		return true, c.failColl(key.operation.String(), err)
	}
	return true, nil
}
