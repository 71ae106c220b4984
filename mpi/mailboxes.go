package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/engine"

	"github.com/weft-mpi/weft/internal/contextid"
)

// mailboxesAfter is how many collectives a communicator has before its ranks prepare mailboxes: what lives
// for a few calls is better off without.
const mailboxesAfter = 8

// prepareMailboxes sees to it that the communicator has mailboxes where it can and it is time, and tells the
// call whether it has. All ranks do that at the same call. The lock of k is held.
func (a *collectiveCall) prepareMailboxes(k *collState) error {
	c := a.comm
	if k.mailboxes == nil {
		if k.decided || c.size < 2 || c.size > engine.MailboxRanks ||
			k.number.Load() < mailboxesAfter && !c.choices.ForcesMailboxes() {
			return nil
		}
		var world []int32
		if c.members != nil {
			world = c.members.world
		}
		if k.decided = !c.e.SharesMemory(world, c.size); k.decided {
			return nil
		}
		tag := engine.CollectiveTag(false, k.number.Add(1), engine.OperationMailboxes, 0)
		k.mailboxes = c.e.NewMailboxes(contextid.Collective.In(c.context), tag, world, c.rank, c.size)
		k.serial.Store(true)
	}
	if !k.decided {
		ready, err := k.mailboxes.Prepare(c.canceller)
		if err != nil {
			a.skip(k)
			return err
		}
		k.decided, k.pulls = true, ready && k.mailboxes.Pulls()
		k.serial.Store(ready)
	}
	if k.serial.Load() {
		a.call.Mailbox, a.call.Pull = k.mailboxes.Bytes(), k.pulls
	}
	return nil
}

// skip counts a call that has failed before it was known how it is carried out, as the other ranks may have
// carried it out.
func (a *collectiveCall) skip(k *collState) {
	a.call.Mailbox = engine.MailboxBytes(a.call.Size)
	var rounds [2]int
	for i := range rounds {
		a.call.Pull = i == 1
		a.planOwn(k)
		if s := &k.own[k.latest].Schedule; s.Mailboxes {
			rounds[i] = s.Rounds()
		}
	}
	a.nextTag()
	k.mailboxes.Skip(rounds[0], rounds[1])
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
