package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// Waiting is spin, yield, sleep. A waiter first makes passes itself, as does every other waiter that gets the lock. When
// that has brought nothing for a while it sleeps: the first to do so becomes the driver and sleeps in the completion queue,
// where traffic wakes it; the others park until their request is done, or until the driver leaves and one of them has to
// take its place.
//
// What must hold under the lock: while anybody is parked, some waiter is awake or driving.
type waiting struct {
	e      *Engine
	life   context.Context // ends with the engine; connects hang on it
	end    context.CancelFunc
	driver *waiter   // who sleeps in the completion queue
	parked []*waiter // who sleeps on his own
	free   *waiter
}

// waiter is one sleeping goroutine.
type waiter struct {
	signal chan struct{}
	any    bool // waits for something other than a request: wake it for every arrival and every failure
	at     int  // index in parked; -1 when not there
	next   *waiter
}

func (w *waiting) init(e *Engine) {
	w.e = e
	w.life, w.end = context.WithCancel(context.Background())
}

func (w *waiting) get(any bool) *waiter {
	s := w.free
	if s == nil {
		s = &waiter{signal: make(chan struct{}, 1)}
	} else {
		w.free = s.next
	}
	s.any, s.at, s.next = any, -1, nil
	return s
}

// wake ends the sleep of one waiter. The lock is held.
func (w *waiting) wake(s *waiter) {
	if s == w.driver {
		w.e.cq.Wake()
		return
	}
	if s.at < 0 {
		return // woken already
	}
	last := len(w.parked) - 1
	w.parked[last].at = s.at
	w.parked[s.at] = w.parked[last]
	w.parked = w.parked[:last]
	s.at = -1
	s.signal <- struct{}{}
}

// wakeAny wakes whoever waits for something other than a request.
func (w *waiting) wakeAny() {
	if w.driver != nil && w.driver.any {
		w.e.cq.Wake()
	}
	for i := len(w.parked) - 1; i >= 0; i-- {
		if i < len(w.parked) && w.parked[i].any {
			w.wake(w.parked[i])
		}
	}
}

// handOver is called by a waiter that leaves: if nobody drives, one of the parked has to.
func (w *waiting) handOver() {
	if w.driver == nil && len(w.parked) > 0 {
		w.wake(w.parked[len(w.parked)-1])
	}
}

// patience counts what a waiter may still spin.
type patience struct {
	idle  int
	since time.Time
}

const (
	passesPerClock  = 32 // idle passes between two looks at the clock
	passesPerYield  = 64 // idle passes between two chances for other goroutines
	passesWhenShort = 3  // idle passes where cores are short
)

// left tells whether to make another pass; false when it is time to sleep.
func (p *patience) left(spinFor time.Duration) bool {
	p.idle++
	if spinFor == 0 {
		runtime.Gosched()
		sys.Yield()
		return p.idle < passesWhenShort
	}
	if p.idle%passesPerYield == 0 {
		runtime.Gosched()
	}
	if p.idle%passesPerClock == 0 {
		now := time.Now()
		if p.since.IsZero() {
			p.since = now
		} else if now.Sub(p.since) > spinFor {
			return false
		}
	}
	return true
}

// again starts over: something has happened.
func (p *patience) again() { *p = patience{} }

// wait returns the result of a request when it is done.
func (e *Engine) wait(r *request) (Status, error) {
	var p patience
	for {
		if e.mu.TryLock() {
			busy := false
			if !r.done.Load() {
				busy = e.pass()
			}
			if r.done.Load() {
				st, err := e.collect(r)
				e.waiting.handOver()
				e.mu.Unlock()
				return st, err
			}
			e.mu.Unlock()
			if busy {
				p.again()
				continue
			}
		} else if r.done.Load() {
			runtime.Gosched() // whoever has the lock may need the processor to leave it
			continue
		}
		if !p.left(e.spinFor) {
			one := [1]*request{r}
			e.sleep(one[:], nil)
			p.again()
		}
	}
}

func anyDone(rs []*request) bool {
	for _, r := range rs {
		if r != nil && r.done.Load() {
			return true
		}
	}
	return false
}

// waitUntil makes passes and sleeps until cond, which is called under the lock, holds. What makes it hold must be an arrival, a
// failure, the completion of one of rs, or be followed by Nudge.
func (e *Engine) waitUntil(rs []*request, cond func() bool) {
	var p patience
	for {
		e.mu.Lock()
		ok := cond()
		busy := false
		if !ok {
			busy = e.pass()
			ok = cond()
		}
		if ok {
			e.waiting.handOver()
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		if busy {
			p.again()
		} else if !p.left(e.spinFor) {
			e.sleep(rs, cond)
			p.again()
		}
	}
}

// Nudge has everybody who waits for something other than a request look again.
func (e *Engine) Nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting.wakeAny()
}

// sleep blocks until one of rs is done or, given a cond, something may have made it hold; or until it is this goroutine's turn to
// make passes. It may return early.
func (e *Engine) sleep(rs []*request, cond func() bool) {
	e.mu.Lock()
	if anyDone(rs) || cond != nil && cond() {
		e.mu.Unlock()
		return
	}
	e.stats.Sleeps++
	s := e.waiting.get(cond != nil)
	for _, r := range rs {
		if r != nil {
			r.waiter = s
		}
	}
	if e.waiting.driver == nil {
		e.waiting.driver = s
		e.cq.Arm()
		e.mu.Unlock()
		err := e.cq.Wait(-1)
		e.mu.Lock()
		e.waiting.driver = nil
		if err != nil && e.dead == nil {
			e.fail(err)
		}
		e.pass()
	} else {
		s.at = len(e.waiting.parked)
		e.waiting.parked = append(e.waiting.parked, s)
		e.mu.Unlock()
		<-s.signal
		e.mu.Lock()
	}
	for _, r := range rs {
		if r != nil && r.waiter == s {
			r.waiter = nil
		}
	}
	s.next, e.waiting.free = e.waiting.free, s
	e.mu.Unlock()
}
