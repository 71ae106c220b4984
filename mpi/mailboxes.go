package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/engine"

	"github.com/weft-mpi/weft/internal/contextid"
)

// mailboxesAfter is how many collectives a communicator has before its ranks prepare mailboxes: what lives
// for a few calls is better off without. After as many for which these are too small they prepare larger
// ones.
const mailboxesAfter = 8

// prepareMailboxesLocked sees to it that the communicator has mailboxes where it can and it is time, and
// tells the call whether it has. All ranks do that at the same call. As for the others below, the lock is
// that of k.
func (a *collectiveCall) prepareMailboxesLocked(k *collState) error {
	c := a.comm
	if k.mailboxes == nil {
		if k.decided || c.size < 2 || c.size > engine.MailboxRanks ||
			k.number.Load() < mailboxesAfter && !c.choices.ForcesMailboxes() {
			return nil
		}
		if k.decided = !c.e.SharesMemory(c.worldRanks(), c.size); k.decided {
			return nil
		}
		tag := engine.CollectiveTag(false, k.number.Add(1), engine.OperationMailboxes, 0)
		k.mailboxes = c.newMailboxes(tag, engine.FirstMailboxBytes)
		k.serial.Store(true)
	}
	if !k.decided {
		ready, err := k.mailboxes.Prepare(c.canceller)
		if err != nil {
			a.skipLocked(k)
			return err
		}
		k.decided, k.pulls = true, ready && k.mailboxes.Pulls()
		k.copyCall = c.e.CopyCall()
		k.serial.Store(ready)
		if !ready {
			k.larger = nil // the other ranks have not begun to prepare any
		}
	}
	if k.larger != nil {
		if err := c.replaceMailboxesLocked(k); err != nil {
			a.skipLocked(k)
			return err
		}
	}
	if k.serial.Load() {
		a.call.Mailbox, a.call.Pull = k.mailboxes.Bytes(), k.pulls
		a.call.CopyCall = k.copyCall
	}
	return nil
}

// worldRanks are the world ranks of the communicator; nil for the world.
func (c *Comm) worldRanks() []int32 {
	if c.members == nil {
		return nil
	}
	return c.members.world
}

// newMailboxes makes mailboxes for messages of up to longest bytes, which the ranks agree on by messages with
// the tag.
func (c *Comm) newMailboxes(tag, longest int) *engine.Mailboxes {
	return c.e.NewMailboxes(contextid.Collective.In(c.context), tag, c.worldRanks(), c.rank, c.size, longest)
}

// growMailboxesLocked has the ranks prepare larger mailboxes when the present ones were too small for enough
// calls, of which this is one. All ranks do that after the same call, whatever has become of it. In checking
// mode the ranks make do with the first ones: to prepare others is a collective that no comparison precedes.
func (a *collectiveCall) growMailboxesLocked(k *collState) {
	c := a.comm
	larger := engine.MailboxBytes(a.call.Size)
	if k.outgrown == mailboxesAfter || !a.call.OutgrowsMailboxes(larger) || a.compares() {
		return
	}
	if k.outgrown++; k.outgrown < mailboxesAfter {
		return
	}
	k.keys = [2]callKey{} // no call goes through the present ones before it is known whether the others do
	// no persistent call has this number
	k.larger = c.newMailboxes(engine.CollectiveTag(true, 0, engine.OperationMailboxes, 0), larger)
	_ = c.replaceMailboxesLocked(k) // if that fails, the next call finds out
}

// replaceMailboxesLocked lets the larger mailboxes take the place of the present ones, if all ranks have
// memory for them.
func (c *Comm) replaceMailboxesLocked(k *collState) error {
	ready, err := k.larger.Prepare(c.canceller)
	if err != nil {
		return err
	}
	if ready {
		c.e.ReleaseMailboxes(k.mailboxes)
		k.mailboxes, k.pulls = k.larger, k.larger.Pulls()
	}
	k.larger = nil
	return nil
}

// skipLocked counts a call that has failed before it was known how it is carried out, as the other ranks may
// have carried it out: through the larger mailboxes if there are any, or else through those that there were.
func (a *collectiveCall) skipLocked(k *collState) {
	for _, m := range [...]*engine.Mailboxes{k.mailboxes, k.larger} {
		if m == nil {
			continue
		}
		a.call.Mailbox = m.Bytes()
		var rounds [2]int
		for i := range rounds {
			a.call.Pull = i == 1
			a.planOwnLocked(k)
			if s := &k.own[k.latest].Schedule; s.Mailboxes {
				rounds[i] = s.Rounds()
			}
		}
		m.Skip(rounds[0], rounds[1])
	}
	a.nextTag()
	if k.mailboxes != nil {
		a.call.Mailbox = k.mailboxes.Bytes()
		a.growMailboxesLocked(k)
	}
}

// releaseMailboxes ends this rank's use of the mailboxes. Where a goroutine still uses them they stay until
// the engine ends.
func (c *Comm) releaseMailboxes() {
	k := &c.coll
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	if k.mailboxes != nil {
		c.e.ReleaseMailboxes(k.mailboxes)
	}
}
