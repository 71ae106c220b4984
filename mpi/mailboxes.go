package mpi

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// mailboxesAfter is the number of collectives of a communicator after which its ranks set up mailboxes, which
// do not pay off for few calls: the next collective does it. After that many calls that do not fit the
// mailboxes, the ranks replace them by larger ones.
const mailboxesAfter = 8

// mailboxState is the state of a communicator's mailboxes. All ranks are in the same state at the same call.
type mailboxState uint32

const (
	mailboxesUntried   mailboxState = iota // initial; left by a collective after mailboxesAfter others
	mailboxesPreparing                     // left when all ranks know whether each has memory for them
	mailboxesReady                         // short collectives go through them; final
	mailboxesMissing                       // the ranks do not share memory, or one has none left; final
)

// mailboxes are the mailboxes of a communicator: shared memory for short collectives (engine.Mailboxes). The
// lock of its collState guards them.
type mailboxes struct {
	state     atomic.Uint32 // a mailboxState
	current   *engine.Mailboxes
	access    engine.Access
	stage     [2]int            // see coll.Call
	hugePages bool              // likewise
	larger    *engine.Mailboxes // being set up to replace current; else nil
	outgrown  int               // calls that did not fit, up to mailboxesAfter
}

func (m *mailboxes) is(s mailboxState) bool { return m.state.Load() == uint32(s) }
func (m *mailboxes) become(s mailboxState)  { m.state.Store(uint32(s)) }

// mayBeInUse reports whether blocking calls wait for one another, because mailboxes may be in use.
func (m *mailboxes) mayBeInUse() bool { return m.is(mailboxesPreparing) || m.is(mailboxesReady) }

// prepareMailboxesLocked sets up mailboxes after mailboxesAfter collectives, if all ranks share memory, and
// tells the call whether there are any. All ranks do that at the same call. Here and below, Locked means the
// lock of k.
func (a *collectiveCall) prepareMailboxesLocked(k *collState) error {
	c, m := a.comm, &k.mailboxes
	if m.is(mailboxesUntried) {
		if c.size < 2 || c.size > engine.MailboxRanks ||
			k.number.latest() < mailboxesAfter && !c.choices.ForcesMailboxes() {
			return nil
		}
		if !c.e.MailboxCalls.SharesMemory(c.worldRanks(), c.size) {
			m.become(mailboxesMissing)
			return nil
		}
		tag := engine.CollectiveTag(false, k.number.nextLocked(), engine.OperationMailboxes, 0)
		m.current = c.newMailboxes(tag, engine.FirstMailboxBytes)
		m.become(mailboxesPreparing)
	}
	if m.is(mailboxesPreparing) {
		ready, err := m.current.Prepare(c.canceller)
		switch {
		case err != nil:
			a.skipLocked(k)
			return err
		case ready:
			m.access = m.current.Access()
			m.hugePages = c.e.HugePages()
			m.decideStage(c.e)
			m.become(mailboxesReady)
		default:
			m.become(mailboxesMissing)
			m.larger = nil // the other ranks have not begun to set up any
		}
	}
	if m.larger != nil {
		if err := c.replaceMailboxesLocked(k); err != nil {
			a.skipLocked(k)
			return err
		}
	}
	if m.is(mailboxesReady) {
		a.call.Mailbox = m.current.Bytes()
		a.reachBy(m.access)
		a.call.Stage, a.call.StageByBoth, a.call.HugePages = m.stage[0], m.stage[1], m.hugePages
	}
	return nil
}

// decideStage sets the lengths up to which this rank copies to the stage, by what copies take so far.
func (m *mailboxes) decideStage(e *engine.Engine) {
	costs := e.CopyCosts()
	m.stage = [...]int{costs.Staged(), costs.StagedByBoth()}
}

// reachBy tells the call how the ranks reach each other's memory.
func (a *collectiveCall) reachBy(access engine.Access) {
	a.call.Pull, a.call.Quick, a.call.Rewrite = access.CanPull(), access.Quick(), access.Rewrite()
}

// worldRanks returns the world ranks of the communicator; nil for the world.
func (c *Comm) worldRanks() []int32 {
	if c.members == nil {
		return nil
	}
	return c.members.world
}

// newMailboxes makes mailboxes for messages of up to longest bytes. The messages of their set-up have the
// tag.
func (c *Comm) newMailboxes(tag, longest int) *engine.Mailboxes {
	context := contextid.Collective.In(c.context)
	return c.e.MailboxCalls.New(context, tag, c.worldRanks(), c.rank, c.size, longest)
}

// growMailboxesLocked counts a call that does not fit the mailboxes, and after enough of them begins to set
// up larger ones. All ranks do that after the same call, whatever its result. In checking mode the ranks keep
// the first ones: the set-up is a collective without a comparison.
func (a *collectiveCall) growMailboxesLocked(k *collState) {
	c := a.comm
	larger := engine.MailboxBytes(a.call.Size)
	m := &k.mailboxes
	if m.outgrown == mailboxesAfter || !a.call.OutgrowsMailboxes(larger) || a.compares() {
		return
	}
	if m.outgrown++; m.outgrown < mailboxesAfter {
		return
	}
	k.keys = [2]callKey{} // no call may use the current ones before the ranks have agreed on the larger ones
	// no persistent call has this number
	m.larger = c.newMailboxes(engine.CollectiveTag(true, 0, engine.OperationMailboxes, 0), larger)
	_ = c.replaceMailboxesLocked(k) // if this fails, the next call returns the error
}

// replaceMailboxesLocked replaces the mailboxes by the larger ones, if all ranks have memory for them.
func (c *Comm) replaceMailboxesLocked(k *collState) error {
	m := &k.mailboxes
	ready, err := m.larger.Prepare(c.canceller)
	if err != nil {
		return err
	}
	if ready {
		c.e.MailboxCalls.Release(m.current)
		m.current, m.access = m.larger, m.larger.Access()
		m.decideStage(c.e) // their set-up has sampled copies
	}
	m.larger = nil
	return nil
}

// skipLocked counts a call that has failed before its algorithm was chosen, as the other ranks may have
// executed it through mailboxes: the larger ones if there are any, or else the current ones.
func (a *collectiveCall) skipLocked(k *collState) {
	for _, m := range [...]*engine.Mailboxes{k.mailboxes.current, k.mailboxes.larger} {
		if m == nil {
			continue
		}
		a.call.Mailbox = m.Bytes()
		var rounds engine.Rounds
		for access := range rounds {
			a.reachBy(engine.Access(access))
			a.planOwnLocked(k)
			if s := &k.own[k.latest].Schedule; s.Mailboxes {
				rounds[access] = s.Rounds()
			}
		}
		m.Skip(rounds)
	}
	a.nextTag()
	if m := k.mailboxes.current; m != nil {
		a.call.Mailbox = m.Bytes()
		a.growMailboxesLocked(k)
	}
}

// releaseMailboxes ends this rank's use of the mailboxes. If a goroutine still uses them they stay until the
// engine ends.
func (c *Comm) releaseMailboxes() {
	k := &c.coll
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	for _, m := range [...]*engine.Mailboxes{k.mailboxes.current, k.mailboxes.larger} {
		if m != nil {
			c.e.MailboxCalls.Release(m)
		}
	}
}
