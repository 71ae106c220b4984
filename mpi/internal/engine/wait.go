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
// What must hold under the lock: while anybody is parked, some waiter is awake or driving, or a completion handler makes the passes. With
// one, waiters watch their requests, and park: nobody of them drives.
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
		w.e.wake()
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
		w.e.wake()
	}
	for i := len(w.parked) - 1; i >= 0; i-- {
		if i < len(w.parked) && w.parked[i].any {
			w.wake(w.parked[i])
		}
	}
}

// wakeAll wakes whoever sleeps.
func (w *waiting) wakeAll() {
	if w.driver != nil {
		w.e.wake()
	}
	for len(w.parked) > 0 {
		w.wake(w.parked[len(w.parked)-1])
	}
}

// handOver is called by a waiter that leaves: if nobody drives, one of the parked has to.
func (w *waiting) handOver() {
	if w.driver == nil && len(w.parked) > 0 && !w.e.handled() {
		w.wake(w.parked[len(w.parked)-1])
	}
}

// patience counts what a waiter may still spin.
type patience struct {
	idle    int
	since   time.Time // it spins
	yielded time.Time // to other goroutines
}

const (
	passesPerClock = 32                     // idle passes between two looks at the clock
	passesPerTurn  = 16                     // idle passes between two chances for other goroutines, where ranks take turns on a core
	triesPerTurn   = 64                     // attempts at the lock, likewise
	yieldEvery     = 100 * time.Microsecond // likewise, where a rank has its own: to yield wakes another thread there, for nothing as a rule
)

// left tells whether to make another pass; false when it is time to sleep.
func (p *patience) left(e *Engine) bool {
	p.idle++
	if e.spinFor == 0 {
		// The system's yield, to other ranks, is the cheap one: the runtime's wakes another thread, if it has one to spare.
		if p.idle%passesPerTurn == 0 {
			runtime.Gosched()
		}
		sys.Yield()
		return p.idle < e.yields
	}
	if p.idle%passesPerClock != 0 {
		return true
	}
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if p.yielded.IsZero() {
		p.yielded = now
	}
	if now.Sub(p.yielded) > yieldEvery || e.mu.wanted() {
		runtime.Gosched()
		p.yielded = now
	}
	return now.Sub(p.since) <= e.spinFor
}

// watch waits for what a completion handler brings about; false when it is time to sleep.
func (p *patience) watch(e *Engine, there func() bool) bool {
	for !there() {
		if !p.left(e) {
			return false
		}
	}
	return true
}

// again starts over: something has happened. Others have waited for their chance all the same.
func (p *patience) again() { *p = patience{yielded: p.yielded} }

// wait returns the result of a request when it is done.
func (e *Engine) wait(r *request) (Status, error) { return e.waitFor(r, r.handle()) }

// waitFor is wait for a handle that others may have too: one of them gets the result.
func (e *Engine) waitFor(r *request, h Request) (Status, error) {
	var p patience
	for {
		if e.mu.TryLock() {
			if r.gen != h.gen {
				e.waiting.handOver()
				e.mu.Unlock()
				return Status{}, errUsed
			}
			busy := false
			switch {
			case r.completed():
			case e.handled():
				e.putOff()
			default:
				busy = e.pass()
			}
			if r.completed() {
				st, err := e.collect(h, r)
				e.waiting.handOver()
				e.mu.Unlock()
				return st, err
			}
			handled := e.handled()
			e.mu.Unlock()
			if handled {
				if !p.watch(e, func() bool { return r.doneIs(h.gen) }) {
					e.sleep(1, func(int) Request { return h }, nil)
				}
				busy = true
			}
			if busy {
				p.again()
				continue
			}
		} else if p.idle%triesPerTurn == triesPerTurn-1 || r.doneIs(h.gen) {
			runtime.Gosched() // whoever has the lock may need the processor to leave it
			if r.doneIs(h.gen) {
				continue
			}
		}
		if !p.left(e) {
			e.sleep(1, func(int) Request { return h }, nil)
			p.again()
		}
	}
}

// waitUntil makes passes and sleeps until cond, which is called under the lock, holds; it may be called again then. What makes it hold must
// be the completion of one of n requests, whose handles at gives; or, where n is 0, an arrival, a failure, or something that is followed by
// Nudge.
func (e *Engine) waitUntil(n int, at func(i int) Request, cond func() bool) {
	var p patience
	for {
		e.mu.Lock()
		ok := cond()
		busy, handled := false, e.handled()
		seen := e.changes.Load()
		if !ok {
			if handled {
				e.putOff()
			} else {
				busy = e.pass()
			}
			ok = cond()
		}
		if ok {
			e.waiting.handOver()
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		if handled {
			if !p.watch(e, func() bool { return e.changes.Load() != seen }) {
				e.sleep(n, at, cond)
			}
			busy = true
		}
		if busy {
			p.again()
		} else if !p.left(e) {
			e.sleep(n, at, cond)
			p.again()
		}
	}
}

// anyDone tells whether one of n handles has nothing left to wait for.
func (e *Engine) anyDone(n int, at func(i int) Request) bool {
	for i := range n {
		if h := at(i); h != (Request{}) {
			if r := e.requests.find(h); r == nil || r.completed() {
				return true
			}
		}
	}
	return false
}

// Nudge has everybody who waits for something other than a request look again.
func (e *Engine) Nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting.wakeAny()
}

// sleep blocks until one of n requests is done or, where n is 0, something may have made cond hold; or until it is this goroutine's
// turn to make passes. It may return early.
func (e *Engine) sleep(n int, at func(i int) Request, cond func() bool) {
	e.mu.Lock()
	if n > 0 && e.anyDone(n, at) || n == 0 && cond() {
		e.mu.Unlock()
		return
	}
	e.stats.Sleeps++
	s := e.waiting.get(n == 0)
	for i := range n {
		if r := e.requests.find(at(i)); r != nil {
			r.shared = r.shared || r.waiter != nil && r.waiter != s
			r.waiter, r.minded = s, true
		}
	}
	if e.handled() {
		e.putOff()
	}
	if e.waiting.driver == nil && !e.handled() {
		e.waiting.driver = s
		e.retryPeers() // what was put off must not wait for traffic
		for _, f := range e.fabrics {
			f.cq.Arm()
		}
		e.mu.Unlock()
		err := e.block()
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
	for i := range n {
		if r := e.requests.find(at(i)); r != nil && r.waiter == s {
			r.waiter = nil
		}
	}
	s.next, e.waiting.free = e.waiting.free, s
	e.mu.Unlock()
}
