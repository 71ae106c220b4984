package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// Collectives has the collectives under way, except those that a blocking call executes by itself
// (mailboxcall.go, shortround.go).
type Collectives struct {
	e        *Engine
	active   []*Collective
	runnable []*Collective // those that can advance
	pool     *Collective

	watching []*Collective // those with WatchedMailboxes set

	inPass       bool // the holder of the lock looks at runnable before it releases it
	advancing    bool // a loop over runnable is active
	goroutineDue bool // a goroutine is about to look at runnable
}

// quickBytes is the length up to which a local step is executed under the lock, in a few µs at most.
const quickBytes = 16 << 10

// New returns a collective for one use: it goes back to the pool when its request is complete.
func (cs *Collectives) New() *Collective {
	e := cs.e
	e.mu.Lock()
	defer e.mu.Unlock()
	c := cs.pool
	if c == nil {
		return &Collective{pooled: true}
	}
	cs.pool, c.next = c.next, nil
	return c
}

// Start begins a collective. Its buffers belong to the engine until the request is complete.
func (cs *Collectives) Start(c *Collective) (Request, error) {
	e := cs.e
	start := e.hook.beginCollective(c)
	defer e.hook.endLong(CallCollective, start)
	cs.pinBuffers(c)
	c.prepare()
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := cs.beginLocked(c)
	if err != nil {
		return Request{}, err
	}
	return r.handle(), nil
}

// beginLocked makes the request of a collective and posts the current round.
func (cs *Collectives) beginLocked(c *Collective) (*request, error) {
	cs.e.mu.assertHeld()
	err := cs.e.stopped
	if err == nil && cs.e.failures.noted.Load() {
		err = cs.e.Recovery.mayBegin(c.Context)
	}
	if err == nil {
		err = c.Canceller.Err()
	}
	if err != nil {
		cs.unpinBuffersLocked(c)
		cs.recycleLocked(c)
		return nil, err
	}
	r := cs.e.Requests.get()
	r.kind, r.collective, r.canceller, r.observed = kindCollective, c, c.Canceller, true
	c.request = r
	cs.noteLocked(c)
	cs.active = append(cs.active, c)
	if c.WatchedMailboxes != nil {
		cs.watching = append(cs.watching, c)
	}
	outer := cs.enterLocked()
	cs.postRoundLocked(c)
	cs.leaveLocked(outer)
	return r, nil
}

// noteLocked records the beginning of a collective, once.
func (cs *Collectives) noteLocked(c *Collective) {
	cs.e.mu.assertHeld()
	if c.noted {
		return
	}
	c.noted = true
	cs.e.recorder.Note(recorder.Collective, c.Context, int(operationOf(c.Tag)), c.Tag, c.inputLen())
}

func (cs *Collectives) pinBuffers(c *Collective) {
	if l := &cs.e.hub.Memory; l.mayHave(c.Input) || l.mayHave(c.Output) {
		c.pinned = [2]*Memory{cs.e.hub.Memory.Pin(c.Input), cs.e.hub.Memory.Pin(c.Output)}
	}
}

// unpinBuffersLocked undoes pinBuffers.
func (cs *Collectives) unpinBuffersLocked(c *Collective) {
	cs.e.mu.assertHeld()
	if c.pinned == [2]*Memory{} {
		return
	}
	for _, m := range c.pinned {
		cs.e.hub.Memory.Unpin(m)
	}
	c.pinned = [2]*Memory{}
}

func (cs *Collectives) recycleLocked(c *Collective) {
	cs.e.mu.assertHeld()
	c.state, c.request, c.hasWaiter = collectiveIdle, nil, false
	if c.pooled {
		c.Input, c.Output, c.Canceller, c.memory = nil, nil, nil, [3][]byte{}
		c.Outgoing, c.Incoming = nil, nil
		c.next, cs.pool = cs.pool, c
	}
}

// enterLocked defers the advance of collectives to the matching leaveLocked, which gets its result.
func (cs *Collectives) enterLocked() (outer bool) {
	cs.e.mu.assertHeld()
	outer, cs.inPass = cs.inPass, true
	return outer
}

// leaveLocked advances the collectives whose messages are complete. It reports whether there were any.
func (cs *Collectives) leaveLocked(outer bool) (busy bool) {
	cs.e.mu.assertHeld()
	cs.inPass = outer
	if outer || len(cs.runnable) == 0 {
		return false
	}
	return cs.advanceAllLocked()
}

// advanceAllLocked advances all that are runnable.
func (cs *Collectives) advanceAllLocked() (busy bool) {
	cs.e.mu.assertHeld()
	if cs.advancing {
		return false
	}
	cs.advancing = true
	outer := cs.enterLocked()
	for len(cs.runnable) > 0 {
		busy = true
		c := cs.runnable[0]
		cs.runnable = slices.Delete(cs.runnable, 0, 1)
		c.queued = false
		cs.advanceLocked(c)
	}
	cs.inPass, cs.advancing = outer, false
	return busy
}

// queueLocked makes a collective runnable. If the holder of the lock does not look at runnable before it
// releases the lock, queueLocked starts a goroutine that does: the next pass may be far off.
func (cs *Collectives) queueLocked(c *Collective) {
	cs.e.mu.assertHeld()
	if !c.queued {
		c.queued = true
		cs.runnable = append(cs.runnable, c)
	}
	if cs.inPass || cs.goroutineDue {
		return
	}
	cs.goroutineDue = true
	go func() {
		cs.e.mu.Lock()
		defer cs.e.mu.Unlock()
		cs.goroutineDue = false
		cs.advanceAllLocked()
		cs.e.completionHandler.passes.Add(1)
	}()
}

// messageDoneLocked is called when a message of a collective is complete.
func (cs *Collectives) messageDoneLocked(r *request) {
	cs.e.mu.assertHeld()
	c := r.collective
	if r.kind == kindCollective {
		return
	}
	c.pending--
	if err := r.err; c.err == nil {
		if room := r.bufferLen(); r.kind == kindRecv && (err == nil && r.status.Bytes != room ||
			errors.Is(err, ErrTruncate)) {
			err = c.lengthDiffers(r)
		}
		c.err = err
	}
	if c.pending == 0 || c.err != nil {
		cs.queueLocked(c)
	}
}

// lengthDiffers returns the error for a message that is shorter or longer than the schedule says.
func (c *Collective) lengthDiffers(r *request) error {
	c.wrong = &c.Schedule.Round(c.round)[slices.Index(c.messages, r)]
	sent := r.status.Bytes
	var cut *TruncateError
	if errors.As(r.err, &cut) {
		sent = cut.Bytes
	}
	return c.wrongLength(c.wrong, sent)
}

// wrongLength returns the error for a message of sent bytes in place of step's length.
func (c *Collective) wrongLength(step *coll.Step, sent int) error {
	return fmt.Errorf("%w: in %v %s sent %d bytes instead of the %d expected: the ranks' arguments differ",
		ErrCount, operationOf(c.Tag), rankName(step.Peer, c.worldRank(step.Peer)), sent, step.Dst.Len)
}

// postRoundLocked posts the messages of the current round, receives first.
func (cs *Collectives) postRoundLocked(c *Collective) {
	cs.e.mu.assertHeld()
	c.state, c.pending = collectiveMessages, 1 // until all are posted
	var steps []coll.Step
	if c.round < c.Schedule.Rounds() {
		steps = c.Schedule.Round(c.round)
	}
	for i := range steps {
		s := &steps[i]
		if s.Kind > coll.Recv {
			break
		}
		c.messages = append(c.messages, nil)
		if s.Kind == coll.Recv {
			cs.postReceiveLocked(c, s)
		} else if !c.sent {
			cs.postSendLocked(c, s)
		}
	}
	c.step, c.sent = len(c.messages), false
	if c.pending--; c.pending == 0 || c.err != nil {
		cs.queueLocked(c)
	}
}

func (cs *Collectives) newMessageLocked(c *Collective, span coll.Span, blocks []Block) *request {
	cs.e.mu.assertHeld()
	r := cs.e.Requests.get()
	r.collective, r.canceller, r.observed = c, c.Canceller, true
	if blocks != nil {
		cs.e.views.setBufferLocked(r, blockOf(blocks, span))
	} else {
		r.contiguous(c.span(span))
	}
	c.messages[len(c.messages)-1] = r
	c.pending++
	return r
}

func (cs *Collectives) postReceiveLocked(c *Collective, s *coll.Step) {
	cs.e.mu.assertHeld()
	src := c.worldRank(s.Peer)
	if _, unexpected := cs.e.matching.Lengths(); unexpected > 0 && c.err == nil {
		if m := cs.e.matching.Probe(c.Context, int32(src), AnyTag); m != nil && c.differs(int(m.Tag)) {
			c.err = c.mismatch(src, int(m.Tag), m.Value.bytes)
		}
	}
	cs.e.Recvs.startLocked(cs.newMessageLocked(c, s.Dst, c.Incoming), c.Context, src, c.Tag, 1)
}

func (cs *Collectives) postSendLocked(c *Collective, s *coll.Step) {
	cs.e.mu.assertHeld()
	if cs.sendNowLocked(c, s) {
		return
	}
	r := cs.newMessageLocked(c, s.Src, c.Outgoing)
	cs.e.Sends.startLocked(r, envelope{Context: c.Context, Tag: int32(c.Tag)}, c.worldRank(s.Peer), false)
}

// sendNowLocked sends a message that fits a slot and need not wait for others. It returns false if the
// message needs a request.
func (cs *Collectives) sendNowLocked(c *Collective, s *coll.Step) bool {
	cs.e.mu.assertHeld()
	dst := c.worldRank(s.Peer)
	if c.Outgoing != nil {
		b := blockOf(c.Outgoing, s.Src)
		return cs.e.views.sendNowLocked(c.Context, b.Layout, b.Memory, dst, c.Tag, false)
	}
	p, env := cs.e.peers[dst], envelope{Context: c.Context, Tag: int32(c.Tag)}
	return p != nil && cs.e.Sends.sendNowLocked(p, env, c.span(s.Src), 0)
}

// checkUnexpectedLocked looks at a message without a receive, which may show that its sender is in a
// different collective.
func (cs *Collectives) checkUnexpectedLocked(env envelope, source int) {
	cs.e.mu.assertHeld()
	for _, c := range cs.active {
		if c.Context != env.Context || !c.differs(int(env.Tag)) &&
			(c.state != collectiveInMailboxes || !c.sameCall(int(env.Tag))) {
			continue
		}
		// It must be the source's first message that is left: otherwise it may belong to a much later call.
		if m := cs.e.matching.Probe(c.Context, int32(source), AnyTag); m != nil && m.Tag == env.Tag {
			cs.failLocked(c, c.mismatch(source, int(env.Tag), m.Value.bytes))
		}
	}
}

// failLocked ends a collective with an error, as soon as no message uses its buffers.
func (cs *Collectives) failLocked(c *Collective, err error) {
	cs.e.mu.assertHeld()
	if c.err == nil {
		c.err = err
	}
	cs.queueLocked(c)
}

// Fail aborts a collective that is under way. Its request completes when no message uses its buffers.
func (cs *Collectives) Fail(h Request, err error) {
	e := cs.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.Requests.find(h); r != nil && !r.completed() && r.collective != nil {
		cs.failLocked(r.collective, err)
	}
}

// advanceLocked advances a collective as far as is possible under the lock.
func (cs *Collectives) advanceLocked(c *Collective) {
	cs.e.mu.assertHeld()
	for {
		switch {
		case c.state == collectiveWorking || c.state == collectiveIdle:
			return // the goroutine that works for it queues it afterwards
		case c.state == collectiveInMailboxes:
			if c.err != nil {
				cs.e.MailboxCalls.finishLocked(c)
			}
			return
		case c.err != nil:
			if cs.cancelMessagesLocked(c) {
				cs.finishLocked(c)
			}
			return
		case c.state == collectiveStepsDue || c.pending > 0:
			return
		case c.round == c.Schedule.Rounds():
			cs.finishLocked(c)
			return
		}
		if !cs.localStepsLocked(c) {
			return
		}
		c.round++
		cs.collectMessagesLocked(c)
		cs.postRoundLocked(c)
	}
}

// collectMessagesLocked frees the requests of a round.
func (cs *Collectives) collectMessagesLocked(c *Collective) {
	cs.e.mu.assertHeld()
	for _, r := range c.messages {
		if r != nil {
			cs.e.Requests.put(r)
		}
	}
	c.messages = c.messages[:0]
}

// cancelMessagesLocked cancels the messages of a collective that has failed, and reports whether all of them
// are complete. A send to the rank whose message had the wrong length is not cancelled: that rank is in the
// call, and would wait for it.
func (cs *Collectives) cancelMessagesLocked(c *Collective) bool {
	cs.e.mu.assertHeld()
	if !c.failing {
		c.failing = true
		steps := c.Schedule.Round(c.round)
		for i, r := range c.messages {
			awaited := c.wrong != nil && steps[i].Kind == coll.Send && steps[i].Peer == c.wrong.Peer
			if r != nil && !r.completed() && !awaited {
				cs.e.Cancels.cancelLocked(r, c.err)
			}
		}
	}
	return c.pending == 0
}

// localStepsLocked executes the rest of a round. It reports false if that must be done without the lock.
func (cs *Collectives) localStepsLocked(c *Collective) bool {
	cs.e.mu.assertHeld()
	steps := c.Schedule.Round(c.round)
	for ; c.step < len(steps); c.step++ {
		s := &steps[c.step]
		if max(s.Src.Len, s.Dst.Len) > quickBytes || s.Kind != coll.Copy && !c.Op.Predefined {
			cs.deferStepsLocked(c)
			return false
		}
		c.carryOut(s)
	}
	return true
}

// deferStepsLocked leaves local steps to the goroutine that waits for the collective, or else to a new one.
func (cs *Collectives) deferStepsLocked(c *Collective) {
	cs.e.mu.assertHeld()
	c.state = collectiveStepsDue
	if !c.hasWaiter {
		c.state = collectiveWorking
		if c.runSteps == nil {
			c.runSteps = func() { cs.runSteps(c) }
		}
		cs.e.Go(c.runSteps)
		return
	}
	if r := c.request; r.manySleepers {
		cs.e.hub.sleepers.wakeAll()
	} else if r.sleeper != nil {
		cs.e.hub.sleepers.wake(r.sleeper)
	}
}

// runSteps executes the local steps of a round without the lock, and then advances the collective under it.
// The state is collectiveWorking.
func (cs *Collectives) runSteps(c *Collective) {
	steps := c.Schedule.Round(c.round)
	for ; c.step < len(steps); c.step++ {
		c.carryOut(&steps[c.step])
	}
	cs.e.mu.Lock()
	defer cs.e.mu.Unlock()
	c.state = collectiveMessages
	outer := cs.enterLocked()
	cs.queueLocked(c)
	cs.leaveLocked(outer)
	cs.e.completionHandler.passes.Add(1)
}

// finishLocked completes the request of a collective.
func (cs *Collectives) finishLocked(c *Collective) {
	cs.e.mu.assertHeld()
	cs.collectMessagesLocked(c)
	cs.active = remove(cs.active, c)
	if c.WatchedMailboxes != nil {
		cs.watching = remove(cs.watching, c)
	}
	cs.unpinBuffersLocked(c)
	r, err, wakesConditions, context := c.request, c.err, c.wakesConditions, c.Context
	cs.recycleLocked(c)
	r.collective = nil
	cs.e.Requests.complete(r, err)
	cs.e.unexpected.discardFreed(context)
	if wakesConditions {
		c.over = true
		cs.e.MailboxCalls.acknowledgeOwedLocked()
		cs.e.waiting.wakeConditionsLocked()
	}
}

// remove takes an item out of a list that has it at most once.
func remove[T comparable](list []T, item T) []T {
	if i := slices.Index(list, item); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
