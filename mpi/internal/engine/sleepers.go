package engine

import (
	"sync/atomic"
)

// sleepers are the goroutines of a rank that sleep in calls, whichever endpoints they wait at. One of them,
// the progress owner, sleeps in the completion queues of all endpoints, where traffic wakes it; it then makes
// progress at all of them. The others are parked: they sleep on their own signals until what they wait for is
// done, or until the progress owner leaves and one of them has to take its place. With completion handlers
// all are parked.
//
// Invariant, under mu: while any waiter is parked, another one is awake or is the progress owner, or
// completion handlers make progress.
//
// mu is a leaf in the order of locks: whoever has it takes no other.
type sleepers struct {
	mu     orderedMutex
	owner  *sleeper
	parked []*sleeper
	free   *sleeper
	wakeUp func() // ends the owner's sleep
	turns  Turns  // nil unless there are turns

	owned    atomic.Bool // there is an owner
	orphaned atomic.Bool // some are parked, and there is no owner
}

// sleeper is one sleeping goroutine.
type sleeper struct {
	signal       chan struct{}
	e            *Engine // at which it waits; nil for several
	forCondition bool    // waits for something other than a request: wake it for every arrival and every failure
	at           int     // index in parked; -1 when not there
	woken        bool    // before it slept: what it waits for is done at one of several endpoints
	order        uint64  // for its next turn, where there are turns
	next         *sleeper
}

// get gives a waiter to a goroutine that is about to sleep; put takes it back.
func (b *sleepers) get(e *Engine, forCondition bool) *sleeper {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.free
	if s == nil {
		s = &sleeper{signal: make(chan struct{}, 1)}
	} else {
		b.free = s.next
	}
	s.e, s.forCondition, s.at, s.woken, s.next = e, forCondition, -1, false, nil
	return s
}

func (b *sleepers) put(s *sleeper) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.next, b.free = b.free, s
}

// role is what becomes of a goroutine that is about to sleep.
type role uint8

const (
	wakes role = iota // it does not sleep
	owns              // it is the progress owner; left by leave
	parks             // it sleeps on its signal; left by a wake
)

// enter makes a waiter the progress owner, if it may be that and there is none, or else parks it.
func (b *sleepers) enter(s *sleeper, mayOwn bool) role {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.note()
	switch {
	case s.woken:
		return wakes
	case mayOwn && b.owner == nil:
		b.owner = s
		return owns
	}
	s.at = len(b.parked)
	b.parked = append(b.parked, s)
	return parks
}

// leave ends the ownership of the progress owner.
func (b *sleepers) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner = nil
	b.note()
}

// note is called after every change.
func (b *sleepers) note() {
	b.owned.Store(b.owner != nil)
	b.orphaned.Store(b.owner == nil && len(b.parked) > 0)
}

// unpark takes a waiter out of those that are parked; false if it is not among them.
func (b *sleepers) unpark(s *sleeper) bool {
	if s.at < 0 {
		return false
	}
	last := len(b.parked) - 1
	b.parked[last].at = s.at
	b.parked[s.at] = b.parked[last]
	b.parked[last] = nil
	b.parked = b.parked[:last]
	s.at = -1
	return true
}

// wake ends the sleep of one waiter.
func (b *sleepers) wake(s *sleeper) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeOne(s)
	b.note()
}

func (b *sleepers) wakeOne(s *sleeper) {
	if s == b.owner {
		b.wakeUp()
		return
	}
	if !b.unpark(s) {
		s.woken = true
		return
	}
	if b.turns != nil {
		s.order = b.turns.Order()
	}
	s.signal <- struct{}{}
}

// wakeWhere wakes the waiters for which which holds.
func (b *sleepers) wakeWhere(which func(s *sleeper) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner != nil && which(b.owner) {
		b.wakeUp()
	}
	for i := len(b.parked) - 1; i >= 0; i-- {
		if i < len(b.parked) && which(b.parked[i]) {
			b.wakeOne(b.parked[i])
		}
	}
	b.note()
}

// wakeAll wakes all waiters.
func (b *sleepers) wakeAll() { b.wakeWhere(func(*sleeper) bool { return true }) }

// passOn wakes a parked waiter to become the progress owner, if there is none.
func (b *sleepers) passOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner == nil && len(b.parked) > 0 {
		b.wakeOne(b.parked[len(b.parked)-1])
	}
	b.note()
}

// count is how many sleep.
func (b *sleepers) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.parked)
	if b.owner != nil {
		n++
	}
	return n
}
