package engine

import (
	"sync/atomic"
)

// sleepers are the goroutines of a rank that sleep in calls, at any endpoint. One of them, the progress
// owner, sleeps in the completion queues of all endpoints, where traffic wakes it; it then makes passes at
// all of them. The others are parked: each sleeps on its own signal until its wait is over, or until the
// progress owner leaves and one of them must take its place. With completion handlers all are parked.
//
// Invariant, under mu: while any sleeper is parked, another one is awake or is the progress owner, or
// completion handlers make the passes.
//
// mu is a leaf in the order of locks: no other lock is taken under it.
type sleepers struct {
	mu     orderedMutex
	owner  *sleeper
	parked []*sleeper
	free   *sleeper
	wakeUp func() // ends the owner's sleep
	turns  Turns  // nil unless there are turns
	alarms uint64 // calls of wakeAll

	owned    atomic.Bool // there is an owner
	orphaned atomic.Bool // some are parked, without an owner
}

// sleeper is one sleeping goroutine.
type sleeper struct {
	signal       chan struct{}
	e            *Engine // where it waits; nil for several
	forCondition bool    // waits for a condition, not a request
	at           int     // index in parked; -1 when not there
	woken        bool    // woken by wake before it slept
	alarms       uint64  // calls of wakeAll before get: a later one has woken it too
	order        uint64  // for Turns.Take, with turns
	next         *sleeper
}

// get returns a sleeper for a goroutine that is about to sleep; put takes it back.
func (b *sleepers) get(e *Engine, forCondition bool) *sleeper {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.free
	if s == nil {
		s = &sleeper{signal: make(chan struct{}, 1)}
	} else {
		b.free = s.next
	}
	s.e, s.forCondition, s.at, s.woken, s.alarms, s.next = e, forCondition, -1, false, b.alarms, nil
	return s
}

func (b *sleepers) put(s *sleeper) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.next, b.free = b.free, s
}

// role is the role of a goroutine that is about to sleep.
type role uint8

const (
	staysAwake role = iota // it does not sleep
	owns                   // it is the progress owner; left by leave
	parks                  // it sleeps on its signal; left by a wake
)

// enter makes a sleeper the progress owner, if mayOwn is set and there is none; otherwise it parks it.
func (b *sleepers) enter(s *sleeper, mayOwn bool) role {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.note()
	switch {
	case s.woken || s.alarms != b.alarms:
		return staysAwake
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

// note updates owned and orphaned; it is called after every change.
func (b *sleepers) note() {
	b.owned.Store(b.owner != nil)
	b.orphaned.Store(b.owner == nil && len(b.parked) > 0)
}

// unpark removes a sleeper from those that are parked; false if it is not among them.
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

// wake wakes one sleeper.
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

// wakeWhere wakes the sleepers that which selects. It does not reach those that are about to sleep.
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

// wakeAll wakes all sleepers, and those that are about to sleep.
func (b *sleepers) wakeAll() {
	b.mu.Lock()
	b.alarms++
	b.mu.Unlock()
	b.wakeWhere(func(*sleeper) bool { return true })
}

// passOn wakes a parked sleeper to become the progress owner, if there is none.
func (b *sleepers) passOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner == nil && len(b.parked) > 0 {
		b.wakeOne(b.parked[len(b.parked)-1])
	}
	b.note()
}

// count returns the number of sleepers.
func (b *sleepers) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.parked)
	if b.owner != nil {
		n++
	}
	return n
}
