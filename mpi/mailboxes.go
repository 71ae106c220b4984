package mpi

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// mailboxesAfter is the number of collectives of a communicator after which its ranks set up mailboxes, which
// do not pay off for few calls: the next collective does it. After that many calls that do not fit the
// mailboxes, the ranks replace them by larger ones.
const mailboxesAfter = 8

// renewedAfter is the number of bytes in vectors of collectives after which two ranks replace their larger
// mailboxes by new ones, whose set-up measures anew what copies take, as a host may have moved their cores.
// That takes a quarter of a millisecond, and the vectors at least a hundred times as long.
var renewedAfter = 1 << 30 // changed by tests

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
	next      *engine.Mailboxes // being set up to replace current; else nil
	outgrown  int               // calls that did not fit, up to mailboxesAfter
	renewed   bool              // current is replaced by new ones after renewedAfter bytes
	moved     int               // bytes in vectors since it was set up
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
			m.next = nil // the other ranks have not begun to set up any
		}
	}
	if m.next != nil {
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
	m := &k.mailboxes
	switch {
	case m.renewed:
		k.renewMailboxesLocked(a.comm, &a.call)
	case m.outgrown == mailboxesAfter || a.compares() ||
		!a.call.OutgrowsMailboxes(engine.MailboxBytes(a.call.Size)):
	default:
		if m.outgrown++; m.outgrown == mailboxesAfter {
			k.setUpNextLocked(a.comm)
		}
	}
}

// renewMailboxesLocked counts the bytes of a call of two ranks that have larger mailboxes, and after enough
// begins to set up new ones. Both ranks do that after the same call, whatever its result.
func (k *collState) renewMailboxesLocked(c *Comm, call *coll.Call) {
	m := &k.mailboxes
	if m.moved += call.SameBytes(); m.moved >= renewedAfter {
		m.moved = 0
		k.setUpNextLocked(c)
	}
}

// setUpNextLocked begins to replace the mailboxes by larger ones, or new ones.
func (k *collState) setUpNextLocked(c *Comm) {
	m := &k.mailboxes
	if m.next != nil { // no call has succeeded since: the other rank has used them, and this one never will
		c.e.MailboxCalls.Release(m.next)
	}
	k.keys = [2]callKey{} // no call may use the current ones before the ranks have agreed on the next ones
	// no persistent call has this number
	tag := engine.CollectiveTag(true, 0, engine.OperationMailboxes, 0)
	m.next = c.newMailboxes(tag, engine.MailboxBytes(c.size))
	_ = c.replaceMailboxesLocked(k) // if this fails, the next call returns the error
}

// replaceMailboxesLocked replaces the mailboxes by the next ones, if all ranks have memory for them.
func (c *Comm) replaceMailboxesLocked(k *collState) error {
	m := &k.mailboxes
	ready, err := m.next.Prepare(c.canceller)
	if err != nil {
		return err
	}
	if ready {
		c.e.MailboxCalls.Release(m.current)
		m.current, m.access = m.next, m.next.Access()
		m.renewed = c.size == 2
		m.decideStage(c.e) // their set-up has sampled copies
	}
	m.next = nil
	return nil
}

// skipLocked counts a call that has failed before its algorithm was chosen, as the other ranks may have
// executed it through mailboxes: the next ones if there are any, or else the current ones.
func (a *collectiveCall) skipLocked(k *collState) {
	for _, m := range [...]*engine.Mailboxes{k.mailboxes.current, k.mailboxes.next} {
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
	for _, m := range [...]*engine.Mailboxes{k.mailboxes.current, k.mailboxes.next} {
		if m != nil {
			c.e.MailboxCalls.Release(m)
		}
	}
}
