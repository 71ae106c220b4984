package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

const (
	mailboxLooks     = 16384 // for the messages of an exchange, before passes take over
	mailboxPassEvery = 1024  // looks between two passes
	// looks for one message between two looks for all messages, and for failures
	looksPerCheck = 64
	// exchanges between two passes, so that a rank that never waits long serves its other peers too
	mailboxExchangesPerPass = 64
	takenLong               = 8 << 10 // see takesLong
)

// MailboxCalls executes collectives through mailboxes.
//
// Invariants, under the lock: the ranks of a communicator make the same exchanges in the same order, so the
// number of an exchange identifies its messages; a collective that waits without looking is in waiting, and
// has a request.
type MailboxCalls struct {
	e        *Engine
	waiting  []*Collective // those for whose messages passes look in mailboxes
	begun    uint64        // number of exchanges
	owing    []*Mailboxes  // with acknowledgements to send, which must not wait for the next exchange
	released []*Mailboxes  // released here, while some rank may still write to them
	// released here during their set-up, which goes on: the other ranks may wait for it
	unfinished []*Mailboxes
	buffers    collectiveBuffers
	stage      pullStage
}

// Run executes a collective whose messages fit the mailboxes. The caller serializes Run, Skip and Prepare of
// the same mailboxes.
func (mc *MailboxCalls) Run(c *Collective, m *Mailboxes) error {
	e := mc.e
	start := e.hook.beginCollective(c)
	mc.e.Collectives.pinBuffers(c)
	c.prepare()
	var err error
	first := m.exchange + 1 // the caller serializes all changes
	c.flagTag = mailboxTag(c)
	if c.Schedule.Pulls {
		err = mc.pullRounds(c, m)
	} else {
		err = mc.rounds(c, m)
	}
	if err != nil || c.pinned[0] != nil || c.pinned[1] != nil {
		e.mu.Lock()
		mc.e.Collectives.unpinBuffersLocked(c)
		mc.tellFailureLocked(m, first, err)
		e.mu.Unlock()
	}
	e.hook.endLong(CallCollective, start)
	return err
}

// rounds executes a schedule whose messages have payloads.
func (mc *MailboxCalls) rounds(c *Collective, m *Mailboxes) error {
	for {
		err := mc.exchange(c, m)
		if c.round == c.Schedule.Rounds() { // it has none
			return err
		}
		steps := c.Schedule.Round(c.round)
		c.round++
		if err != nil {
			mc.passOver(c, m)
			return err
		}
		for i := c.step; i < len(steps); i++ {
			c.carryOut(&steps[i])
		}
		if c.round == c.Schedule.Rounds() {
			return nil
		}
	}
}

// passOver is passOverLocked without the lock. It is apart from rounds, as a function with a deferred call in
// a loop takes longer to return.
func (mc *MailboxCalls) passOver(c *Collective, m *Mailboxes) {
	mc.e.mu.Lock()
	defer mc.e.mu.Unlock()
	mc.passOverLocked(c, m)
}

// passOverLocked counts the rounds that are left of a call that has failed as exchanges: if the ranks' calls
// differ, they have only the first round in common.
func (mc *MailboxCalls) passOverLocked(c *Collective, m *Mailboxes) {
	mc.e.mu.assertHeld()
	if left := c.Schedule.Rounds() - c.round; left > 0 {
		m.exchange += uint64(left)
		m.clearOldFlagsLocked()
		mc.giveUpLocked(m)
	}
}

// exchange sends and receives the messages of a round.
func (mc *MailboxCalls) exchange(c *Collective, m *Mailboxes) error {
	e := mc.e
	e.mu.Lock()
	m.exchange++
	mc.begun++
	if m.fetch.on {
		m.fetch.begins()
	}
	c.mailboxes = m
	c.begin()
	err := e.stopped
	if err == nil {
		err = c.Canceller.Err()
	}
	if err != nil {
		mc.giveUpLocked(m)
		e.mu.Unlock()
		return err
	}
	if m.exchange%mailboxExchangesPerPass == 0 {
		m.clearOldFlagsLocked()
		if !e.completionHandler.active() {
			e.progress.poll()
		}
	}
	done := mc.lookLocked(c)
	if !done {
		return mc.sleepAndUnlock(c)
	}
	if m.done, err = m.exchange, c.err; err == nil {
		m.acknowledgeSendersLocked(c)
		if m.fetch.on {
			m.fetchNextLocked(c)
		}
	} else {
		mc.giveUpLocked(m)
	}
	e.mu.Unlock()
	return err
}

// giveUpLocked ends the current exchange of this rank after a failure: the others may go on to the next one.
func (mc *MailboxCalls) giveUpLocked(m *Mailboxes) {
	mc.e.mu.assertHeld()
	m.done = m.exchange
	mc.oweLocked(m)
	mc.acknowledgeOwedLocked()
}

// begin sets which messages are due.
func (c *Collective) begin() {
	c.step, c.exchange, c.err = 0, nil, nil
	if c.round < c.Schedule.Rounds() {
		steps := c.Schedule.Round(c.round)
		c.step = coll.Messages(steps)
		c.exchange = steps[:c.step]
	}
	c.due = 1<<c.step - 1
}

// lookLocked polls for the messages of an exchange for a while; false if they have not arrived. It releases
// the lock while it yields the core to another rank.
func (mc *MailboxCalls) lookLocked(c *Collective) bool {
	mc.e.mu.assertHeld()
	e := mc.e
	if e.waiting.spinTime == 0 {
		return mc.lookYieldingLocked(c)
	}
	if mc.advanceLocked(c, false) {
		return true
	}
	m := c.mailboxes
	// It polls for one message at a time, so that few instructions pass between its arrival and its use.
	word, room := c.awaited()
	if m.exchange >= m.fetch.due {
		m.timeLookLocked(word)
	}
	number := mailboxNumber(m.exchange)
	looks := min(mailboxLooks, e.waiting.maxLooks)
	for look := 1; look < looks && !e.mu.wanted(); look++ {
		check := look%looksPerCheck == 0
		if check || room || uint32(atomic.LoadUint64(word)) == number {
			if mc.advanceLocked(c, check) {
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

// lookYieldingLocked is lookLocked for a rank that shares its core.
func (mc *MailboxCalls) lookYieldingLocked(c *Collective) bool {
	mc.e.mu.assertHeld()
	e := mc.e
	m := c.mailboxes
	h, looks, yields := &m.handover, looksElsewhere, 0
	done := mc.advanceLocked(c, true)
	if h.on {
		if yields = h.yields(c, done); yields > 0 && !h.away {
			looks = 0 // the rank beside this one needs the core, whatever the others do
		}
	}
	for look := 1; ; look++ {
		if h.on && !done {
			looks, done = mc.lookElsewhereLocked(c, looks)
		}
		if done && (yields <= 0 || c.err != nil || look > 1 && h.over(m)) {
			return true
		}
		yields--
		e.mu.Unlock()
		e.waiting.yieldCore(look)
		e.mu.Lock()
		if look >= e.waiting.maxYields || e.waiting.describing.Load() {
			return done
		}
		if look%passesPerYield == 0 && e.stopped == nil && !e.completionHandler.active() {
			e.progress.poll()
		}
		done = done || mc.advanceLocked(c, true)
	}
}

// awaited returns the word to poll, which is that of the first message due, and whether a message of this
// rank is unsent. Sends come after receives in exchange.
func (c *Collective) awaited() (word *uint64, room bool) {
	return c.mailboxes.flagOf(c.exchange[bits.TrailingZeros64(c.due)].Peer), c.waitsForRoom()
}

// exchanged reports whether all messages of the round are sent and received.
func (c *Collective) exchanged() bool { return c.due == 0 }

func (c *Collective) waitsForRoom() bool { return c.exchange[bits.Len64(c.due)-1].Kind == coll.Send }

// advanceLocked sends and receives the messages that it can, and reports whether the exchange is over. With
// check it also ends the exchange if the others' messages may never arrive.
func (mc *MailboxCalls) advanceLocked(c *Collective, check bool) (done bool) {
	mc.e.mu.assertHeld()
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
		c.err = mc.interruptedLocked(c)
	}
	return c.err != nil
}

// interruptedLocked returns why the messages that a collective awaits may never arrive, or nil.
func (mc *MailboxCalls) interruptedLocked(c *Collective) error {
	mc.e.mu.assertHeld()
	if err := c.mailboxes.failedLocked(); err != nil {
		return err
	}
	if err := c.mailboxes.givenUpLocked(c); err != nil {
		return err
	}
	return mc.e.Recovery.revokedErr(c.Context)
}

// receiveFromMailbox copies a message that has arrived. With sent false it does not: the message might
// overwrite bytes that this rank has yet to send.
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
		// The peer may be waiting for this acknowledgement. One that was sent with a message may be lost,
		// because the peer does not read messages of exchanges that it has aborted.
		m.acknowledgeLocked(b)
		if c.state == collectiveInMailboxes && b.ackWritten+uint64(m.depth/2) <= m.done {
			m.tellLocked(b, m.done)
		}
		return false
	}
	if tag := int(flag >> 32); tag != c.flagTag {
		c.err = c.mismatch(b.peer.rank, tag, unknownLength)
		return false
	}
	takeover := m.receivedLocked(b, n) // in any case: unsent messages may wait for this acknowledgement
	if !sent {
		return false
	}
	if c.Schedule.Pulls {
		b.takeKeys(payload)
	} else if c.takesLong(n) {
		sys.CopyLong(c.span(s.Dst), payload)
	} else {
		wordcopy.Copy(c.span(s.Dst), payload)
	}
	if takeover {
		wordcopy.TakeOver(payload)
	}
	return true
}

// takesLong reports whether n bytes are copied past what the cache holds, where that is faster: they are not
// combined next.
func (c *Collective) takesLong(n int) bool {
	return n > takenLong && c.Call.Quick == coll.QuickAlways && c.Op == nil
}

// acknowledgeSendersLocked acknowledges to the ranks from which this one receives without sending to them,
// before they have to wait for it.
func (m *Mailboxes) acknowledgeSendersLocked(c *Collective) {
	m.e.mu.assertHeld()
	for i := len(c.exchange) - 1; i >= 0; i-- {
		s := &c.exchange[i]
		// A rank that sends usually sends to each rank from which it receives, and its messages acknowledge.
		// In scanDirect it does not: it acknowledges to the lower ranks when it polls for their messages in
		// vain.
		if s.Kind == coll.Send {
			return
		}
		m.acknowledgeLocked(&m.peers[s.Peer])
	}
}

// sleepAndUnlock leaves the messages of an exchange to passes, and waits for its end.
func (mc *MailboxCalls) sleepAndUnlock(c *Collective) error {
	mc.e.mu.assertHeld()
	e := mc.e
	if c.Canceller != nil {
		if err := c.Canceller.Err(); err != nil {
			mc.giveUpLocked(c.mailboxes)
			e.mu.Unlock()
			return err
		}
	}
	err := mc.sentOtherwiseLocked(c)
	if err != nil {
		mc.giveUpLocked(c.mailboxes)
		e.mu.Unlock()
		return err
	}
	r := e.Requests.get()
	r.kind, r.collective, r.canceller, r.observed = kindCollective, c, c.Canceller, true
	c.request, c.state = r, collectiveInMailboxes
	mc.e.Collectives.active = append(mc.e.Collectives.active, c)
	mc.waiting = append(mc.waiting, c)
	h := r.handle()
	e.mu.Unlock()
	_, err = e.waiting.waitFor(r, h)
	return err
}

// pollLocked advances the exchanges that wait for messages in mailboxes.
func (mc *MailboxCalls) pollLocked() (busy bool) {
	mc.e.mu.assertHeld()
	for i := 0; i < len(mc.waiting); {
		c := mc.waiting[i]
		before := c.due
		if mc.advanceLocked(c, true) {
			mc.finishLocked(c)
			busy = true
			continue
		}
		busy = busy || c.due != before
		i++
	}
	return busy
}

// finishLocked completes the request of an exchange.
func (mc *MailboxCalls) finishLocked(c *Collective) {
	mc.e.mu.assertHeld()
	mc.waiting = remove(mc.waiting, c)
	mc.e.Collectives.active = remove(mc.e.Collectives.active, c)
	m, r := c.mailboxes, c.request
	c.state, c.request, r.collective = collectiveIdle, nil, nil
	if m.done = m.exchange; c.err == nil {
		m.acknowledgeSendersLocked(c)
	} else {
		mc.giveUpLocked(m)
	}
	mc.e.Requests.complete(r, c.err)
	mc.e.unexpected.discardFreed(c.Context)
}

// needsInMailboxes returns the world ranks for which an exchange waits: those whose messages have not
// arrived, and those that must free a slot for a message of this rank. moving reports that there are none.
func (c *Collective) needsInMailboxes() (needs []int, moving bool) {
	for i := range c.exchange {
		if c.due>>i&1 == 0 {
			continue
		}
		needs = append(needs, c.worldRank(c.exchange[i].Peer))
	}
	return needs, len(needs) == 0
}
