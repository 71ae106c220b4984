package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

const (
	mailboxLooks     = 16384 // for the messages of a call, before it is left to passes
	mailboxPassEvery = 1024  // looks between two passes over everything else
	// looks for one message between two for all, and at whether they may come at all
	looksPerCheck = 64
	// calls between two passes, so that a rank that never waits long serves the others too
	mailboxCallsPerPass = 64
)

// RunInMailboxes carries out a collective whose messages fit the mailboxes, in one round unless it pulls. One
// goroutine of a rank at a time does so.
func (cs *Collectives) RunInMailboxes(c *Collective, m *Mailboxes) error {
	e := cs.e
	start := e.hook.beginCollective(c)
	cs.pinBuffers(c)
	c.prepare()
	var err error
	first := m.call + 1 // nobody else changes it
	c.flagTag = mailboxTag(c)
	if c.Schedule.Pulls {
		err = cs.pullRounds(c, m)
	} else if err = cs.exchangeInMailboxes(c, m); err == nil && c.Schedule.Rounds() > 0 {
		steps := c.Schedule.Round(0)
		for i := c.step; i < len(steps); i++ {
			c.carryOut(&steps[i])
		}
	}
	if err != nil || c.pinned[0] != nil || c.pinned[1] != nil {
		e.mu.Lock()
		cs.unpinBuffersLocked(c)
		cs.tellFailureLocked(m, first, err)
		e.mu.Unlock()
	}
	e.hook.endLong(CallCollective, start)
	return err
}

// exchangeInMailboxes carries out the messages of a round.
func (cs *Collectives) exchangeInMailboxes(c *Collective, m *Mailboxes) error {
	e := cs.e
	e.mu.Lock()
	m.call++
	cs.begun++
	c.mailboxes = m
	c.begin()
	err := e.stopped
	if err == nil {
		err = c.Canceller.Err()
	}
	if err != nil {
		cs.giveUpInMailboxesLocked(m)
		e.mu.Unlock()
		return err
	}
	if m.call%mailboxCallsPerPass == 0 && !e.completionHandler.active() {
		e.progress.poll()
	}
	done := cs.lookInMailboxesLocked(c)
	if !done {
		return cs.sleepAndUnlock(c) // and leaves the lock
	}
	if m.done, err = m.call, c.err; err == nil {
		m.acknowledgeSendersLocked(c)
	} else {
		cs.giveUpInMailboxesLocked(m)
	}
	e.mu.Unlock()
	return err
}

// giveUpInMailboxesLocked ends the present call of this rank: the others may go on to the next.
func (cs *Collectives) giveUpInMailboxesLocked(m *Mailboxes) {
	cs.e.mu.assertHeld()
	m.done = m.call
	cs.oweLocked(m)
	cs.acknowledgeOwedLocked()
}

// begin notes which messages are due.
func (c *Collective) begin() {
	c.step, c.exchange, c.err = 0, nil, nil
	if c.round < c.Schedule.Rounds() {
		steps := c.Schedule.Round(c.round)
		c.step = coll.Messages(steps)
		c.exchange = steps[:c.step]
	}
	c.due = 1<<c.step - 1
}

// lookInMailboxesLocked looks for the messages of a call for a while; false if they have not come. It
// releases the lock while another rank is given the processor.
func (cs *Collectives) lookInMailboxesLocked(c *Collective) bool {
	cs.e.mu.assertHeld()
	e := cs.e
	sharesCore := e.waiting.spinTime == 0
	if cs.advanceInMailboxesLocked(c, sharesCore) {
		return true
	}
	if sharesCore {
		return cs.lookYieldingLocked(c)
	}
	m := c.mailboxes
	// One message is waited for at a time: who comes late sees it by as few instructions as there can be.
	word, room := c.awaited()
	call := uint32(m.call)
	looks := min(mailboxLooks, e.waiting.maxLooks)
	for look := 1; look < looks && !e.mu.wanted(); look++ {
		check := look%looksPerCheck == 0
		if check || room || uint32(atomic.LoadUint64(word)) == call {
			if cs.advanceInMailboxesLocked(c, check) {
				return true
			}
			word, room = c.awaited()
			if check {
				e.Windows.copyShared()
			}
			if look%mailboxPassEvery == 0 && !e.completionHandler.active() {
				e.progress.poll()
			}
		}
		sys.AwaitLoads()
	}
	return false
}

// lookYieldingLocked looks for the messages of a call where other ranks have to be given the processor.
func (cs *Collectives) lookYieldingLocked(c *Collective) bool {
	cs.e.mu.assertHeld()
	e := cs.e
	for look := 1; ; look++ {
		e.mu.Unlock()
		e.waiting.yieldCore(look)
		e.mu.Lock()
		if look >= e.waiting.maxYields {
			return false
		}
		if look%passesPerYield == 0 && !e.completionHandler.active() {
			e.progress.poll()
		}
		if cs.advanceInMailboxesLocked(c, true) {
			return true
		}
	}
}

// awaited is the word that is looked for, until what comes with it is done with, and whether something of
// this rank is not sent: sends stand behind receives.
func (c *Collective) awaited() (word *uint64, room bool) {
	return c.mailboxes.flagOf(c.exchange[bits.TrailingZeros64(c.due)].Peer), c.waitsForRoom()
}

// exchanged reports whether all messages of the round are sent and received.
func (c *Collective) exchanged() bool { return c.due == 0 }

func (c *Collective) waitsForRoom() bool { return c.exchange[bits.Len64(c.due)-1].Kind == coll.Send }

// advanceInMailboxesLocked sends and receives what it can, and tells whether the call is over; if it is to
// check that, also if the others' messages may not come any more.
func (cs *Collectives) advanceInMailboxesLocked(c *Collective, check bool) (done bool) {
	cs.e.mu.assertHeld()
	if c.exchanged() || c.err != nil {
		return true
	}
	m := c.mailboxes
	steps := c.exchange
	i := len(steps) - 1
	sent := true
	for ; i >= 0 && steps[i].Kind == coll.Send; i-- {
		if c.due>>i&1 == 0 {
			continue
		}
		if s := &steps[i]; m.putLocked(&m.peers[s.Peer], c.flagTag, c.payload(m, s)) {
			c.due &^= 1 << i
		} else {
			sent = false
		}
	}
	for ; i >= 0; i-- {
		if c.due>>i&1 != 0 && !c.receiveFromMailbox(m, &steps[i], sent) {
			if c.err != nil {
				return true
			}
			continue
		}
		c.due &^= 1 << i
	}
	if c.exchanged() {
		return true
	}
	if check {
		c.err = cs.interruptedLocked(c)
	}
	return c.err != nil
}

// interruptedLocked tells why messages of a call may not come any more.
func (cs *Collectives) interruptedLocked(c *Collective) error {
	cs.e.mu.assertHeld()
	if err := c.mailboxes.failedLocked(); err != nil {
		return err
	}
	if err := c.mailboxes.givenUpLocked(c); err != nil {
		return err
	}
	return cs.e.Recovery.revokedErr(c.Context)
}

// receiveFromMailbox copies a message that has come, unless it may go to memory out of which something is
// still to be sent.
func (c *Collective) receiveFromMailbox(m *Mailboxes, s *coll.Step, sent bool) bool {
	b := &m.peers[s.Peer]
	n := s.Dst.Len
	if c.Schedule.Pulls {
		n = exposedBytes
	}
	flag, payload, ok := m.getLocked(b, n)
	if !ok {
		if tag, differs := m.differedBeforeLocked(b, c); differs {
			c.err = c.mismatch(b.peer.rank, tag, unknownLength)
			return false
		}
		// It may wait for that. What earlier messages have told, it may not have read: it does not take those
		// of calls that it gave up.
		if m.acknowledgeLocked(b); c.state == collectiveInMailboxes && b.ackWritten+mailboxDepth/2 <= m.done {
			m.tellLocked(b, m.done)
		}
		return false
	}
	if tag := int(flag >> 32); tag != c.flagTag {
		c.err = c.mismatch(b.peer.rank, tag, unknownLength)
		return false
	}
	m.receivedLocked(b, n) // in any case: what is still to be sent may wait for that
	if !sent {
		return false
	}
	if c.Schedule.Pulls {
		b.takeKeys(payload)
	} else {
		wordcopy.Copy(c.span(s.Dst), payload)
	}
	return true
}

// acknowledgeSendersLocked tells the ranks that have sent something and get nothing, before they have to
// wait.
func (m *Mailboxes) acknowledgeSendersLocked(c *Collective) {
	m.e.mu.assertHeld()
	for i := len(c.exchange) - 1; i >= 0; i-- {
		s := &c.exchange[i]
		if s.Kind == coll.Send { // as it does to each rank that it receives from, if to any
			return
		}
		m.acknowledgeLocked(&m.peers[s.Peer])
	}
}

// sleepAndUnlock has passes look for the messages of a call, and waits for that.
func (cs *Collectives) sleepAndUnlock(c *Collective) error {
	cs.e.mu.assertHeld()
	e := cs.e
	if c.Canceller != nil {
		if err := c.Canceller.Err(); err != nil {
			cs.giveUpInMailboxesLocked(c.mailboxes)
			e.mu.Unlock()
			return err
		}
	}
	err := cs.sentOtherwiseLocked(c)
	if err != nil {
		cs.giveUpInMailboxesLocked(c.mailboxes)
		e.mu.Unlock()
		return err
	}
	r := e.Requests.get()
	r.kind, r.collective, r.canceller, r.observed = kindCollective, c, c.Canceller, true
	c.request, c.state = r, collectiveInMailboxes
	cs.active = append(cs.active, c)
	cs.inMailboxes = append(cs.inMailboxes, c)
	h := r.handle()
	e.mu.Unlock()
	_, err = e.waiting.waitFor(r, h)
	return err
}

// pollMailboxesLocked has the calls get on that wait for messages in mailboxes.
func (cs *Collectives) pollMailboxesLocked() (busy bool) {
	cs.e.mu.assertHeld()
	for i := 0; i < len(cs.inMailboxes); {
		c := cs.inMailboxes[i]
		before := c.due
		if cs.advanceInMailboxesLocked(c, true) {
			cs.finishInMailboxesLocked(c)
			busy = true
			continue
		}
		busy = busy || c.due != before
		i++
	}
	return busy
}

// finishInMailboxesLocked completes the request of a call.
func (cs *Collectives) finishInMailboxesLocked(c *Collective) {
	cs.e.mu.assertHeld()
	cs.inMailboxes = remove(cs.inMailboxes, c)
	cs.active = remove(cs.active, c)
	m, r := c.mailboxes, c.request
	c.state, c.request, r.collective = collectiveIdle, nil, nil
	if m.done = m.call; c.err == nil {
		m.acknowledgeSendersLocked(c)
	} else {
		cs.giveUpInMailboxesLocked(m)
	}
	cs.e.Requests.complete(r, c.err)
	cs.e.unexpected.discardFreed(c.Context)
}

// needsInMailboxes are the world ranks whose messages a call waits for. It is moving while one of its own
// waits for room, which only its receiver gives.
func (c *Collective) needsInMailboxes() (needs []int, moving bool) {
	for i := range c.exchange {
		if c.due>>i&1 == 0 {
			continue
		}
		needs = append(needs, c.worldRank(c.exchange[i].Peer))
	}
	return needs, len(needs) == 0
}
