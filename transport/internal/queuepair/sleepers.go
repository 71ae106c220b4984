package queuepair

import (
	"sync"

	"go.uber.org/atomic"
)

// Sleepers counts the sleepers on a completion queue's poller: goroutines in Wait, and a handler that waits
// for traffic. Peers pay for wake-ups while sleeping is enabled. So the driver enables it on demand, and
// disables it when nobody sleeps. In the zero value sleeping is disabled.
type Sleepers struct {
	Wanted atomic.Bool // somebody tried to sleep while it was disabled: the driver must call Enable

	mu       sync.Mutex
	possible bool // sleeping is enabled; changed by the driver
	closed   bool
	n        int
	left     sync.Cond // with mu; from Close on
}

// Enable enables sleeping.
func (s *Sleepers) Enable() {
	s.mu.Lock()
	s.possible = !s.closed
	s.mu.Unlock()
}

// Disable disables sleeping; false if somebody sleeps.
func (s *Sleepers) Disable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		return false
	}
	s.possible = false
	return true
}

// Enter begins a sleep; false if sleeping is disabled.
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

// Close disables sleeping for good and waits until all sleepers have left; wake wakes one. If parked is set,
// a handler that ended while parked still counts as one sleeper, and Close does not wait for it.
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
