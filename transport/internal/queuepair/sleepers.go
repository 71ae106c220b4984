package queuepair

import (
	"sync"

	"go.uber.org/atomic"
)

// Sleepers counts who sleeps until a completion queue's poller tells of something: goroutines in Wait, and a
// handler that waits for traffic. The driver makes sleep possible, since that costs the peers something, and
// ends that again. The zero value has nobody, and no sleep is possible.
type Sleepers struct {
	Wanted atomic.Bool // somebody wanted to sleep and could not: the driver is to call Enable

	mu       sync.Mutex
	possible bool // sleepers would be woken; changed by the driver
	closed   bool
	n        int
	left     sync.Cond // with mu; from Close on
}

// Enable makes sleep possible.
func (s *Sleepers) Enable() {
	s.mu.Lock()
	s.possible = !s.closed
	s.mu.Unlock()
}

// Disable makes sleep impossible; false if somebody sleeps.
func (s *Sleepers) Disable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		return false
	}
	s.possible = false
	return true
}

// Enter begins a sleep; false if nothing would end it.
func (s *Sleepers) Enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.possible {
		s.Wanted.Store(true)
		return false
	}
	s.n++
	return true
}

// Leave ends a sleep.
func (s *Sleepers) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n--; s.closed {
		s.left.Broadcast()
	}
}

// Close makes sleep impossible for good, and returns when nobody sleeps any more but a handler that has ended
// parked. wake ends the sleep of one.
func (s *Sleepers) Close(parked bool, wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left.L = &s.mu
	s.closed, s.possible = true, false
	stay := 0
	if parked {
		stay = 1
	}
	for s.n > stay {
		wake()
		s.left.Wait()
	}
}

// Closed reports whether Close has begun.
func (s *Sleepers) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Any reports whether somebody sleeps.
func (s *Sleepers) Any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n > 0
}
