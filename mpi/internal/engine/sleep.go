package engine

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
)

// Waiting is spin, yield, sleep. A waiter first makes progress itself, as does every other waiter that gets
// the lock, and now and then at the other endpoints. When that has brought nothing for a while, it sleeps
// (see sleepers). With a completion handler, waiters only watch their requests, and park.
type waiting struct {
	e            *Engine
	life         context.Context // ends with the engine; connects hang on it
	cancelLife   context.CancelFunc
	began        time.Time       // when the engine was made
	attends      uint32          // calls of attendLocked
	asleep       int             // goroutines that sleep
	onConditions int             // of these, those that wait for something other than a request
	slept        time.Duration   // ends of sleeps less their beginnings, since began
	descriptions descriptions    // of waits, while somebody asks for them
	forLocks     map[uint64]bool // goroutines that wait for the lock of a window
	spinTime     time.Duration   // how long a waiting rank polls before it sleeps
	// looks for one message while the lock is kept; under the lock
	maxLooks  int
	maxYields int          // idle passes before a waiting rank sleeps, where it shares its core
	yielded   atomic.Int64 // when such a rank last let other goroutines run, since began
}

func (w *waiting) init(e *Engine, spinTime time.Duration) {
	w.e, w.spinTime, w.began, w.maxLooks = e, spinTime, time.Now(), math.MaxInt
	w.life, w.cancelLife = context.WithCancel(context.Background())
}

// wakeConditionsLocked wakes the waiters that wait for something other than a request.
func (w *waiting) wakeConditionsLocked() {
	w.e.mu.assertHeld()
	if len(w.e.Choices.held) > 0 {
		w.e.Choices.release()
	}
	if w.onConditions > 0 {
		w.e.hub.sleepers.wakeWhere(func(s *sleeper) bool { return s.forCondition && s.e == w.e })
	}
}

// passOwnershipLocked is called by a waiter that leaves.
func (w *waiting) passOwnershipLocked() {
	w.e.mu.assertHeld()
	if w.e.hub.sleepers.orphaned.Load() && !w.e.completionHandler.active() {
		w.e.hub.sleepers.passOn()
	}
}

// spinBudget is how much longer a waiter may spin.
type spinBudget struct {
	idle    int
	tries   int       // since the waiter has last made passes at other endpoints
	since   time.Time // it spins
	yielded time.Time // to other goroutines
}

const (
	passesPerClock = 32 // idle passes between two looks at the clock
	// attempts of a waiter at its own endpoint between two passes at the others
	attemptsPerRound = 16
	// likewise, where ranks take turns on a core
	passesPerYield    = 16
	lockTriesPerYield = 64 // attempts at the lock between two chances for other goroutines
	// looks for one message in an oversubscribed rank: for a µs
	oversubscribedLooks = 100
	// time between two such chances: the runtime wakes another thread then, for nothing as a rule, and where
	// ranks take turns on a core that thread takes turns too
	yieldEvery = 100 * time.Microsecond
)

// remaining tells whether to make another pass; false when it is time to sleep.
func (p *spinBudget) remaining(e *Engine) bool {
	p.idle++
	if e.waiting.spinTime == 0 {
		if e.connections.underWay.Load() > 0 {
			return false // a connect takes many turns of this core, and wakes who sleeps
		}
		e.waiting.yieldCore(p.idle)
		return p.idle < e.waiting.maxYields
	}
	if e.hub.oversubscribed.Load() {
		sys.Yield()
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
	if now.Sub(p.yielded) > yieldEvery || e.mu.wanted() || e.hub.several.Load() {
		runtime.Gosched()
		p.yielded = now
	}
	return now.Sub(p.since) <= e.waiting.spinTime
}

// yieldCore lets other ranks have this core, and from time to time other goroutines.
func (w *waiting) yieldCore(pass int) {
	if pass%passesPerYield == 0 {
		now := int64(time.Since(w.began))
		if now-w.yielded.Load() > int64(yieldEvery) {
			w.yielded.Store(now)
			runtime.Gosched()
		}
	}
	sys.Yield()
}

// spinUntil spins until a completion handler has made there true; false when it is time to sleep.
func (p *spinBudget) spinUntil(e *Engine, there func() bool) bool {
	for !there() {
		if !p.remaining(e) {
			return false
		}
	}
	return true
}

// reset starts over, since something has happened. The time of the latest yield stays: other goroutines have
// waited since then.
func (p *spinBudget) reset() { *p = spinBudget{yielded: p.yielded, tries: p.tries} }

// attempt counts an attempt of a waiter, and makes passes at the other endpoints when it is time: what it
// waits for may need that, and nobody else may wait there. The lock is not held.
func (p *spinBudget) attempt(e *Engine) {
	if p.tries++; p.tries >= attemptsPerRound {
		p.tries = 0
		e.hub.pollOthers(e)
	}
}

// wait returns the result of a request when it is done.
func (w *waiting) wait(r *request) (Status, error) { return w.waitFor(r, r.handle()) }

// waitFor is wait for a handle of which other goroutines may have copies: one of them gets the result.
func (w *waiting) waitFor(r *request, h Request) (Status, error) {
	var p spinBudget
	for ; ; p.attempt(w.e) {
		if w.e.mu.TryLock() || w.e.mu.takeTurn(0) {
			if r.gen != h.gen {
				w.passOwnershipLocked()
				w.e.mu.Unlock()
				return Status{}, errUsed
			}
			busy := false
			switch {
			case r.completed():
			case w.e.completionHandler.active():
				w.e.completionHandler.armRetryLocked()
			default:
				busy = w.e.progress.poll() || w.watchLocked(r)
			}
			if r.completed() {
				st, err := w.e.Requests.collect(h, r)
				w.passOwnershipLocked()
				w.e.mu.Unlock()
				return st, err
			}
			handled := w.e.completionHandler.active()
			w.e.mu.Unlock()
			if handled {
				if !p.spinUntil(w.e, func() bool { return r.isDone(h.gen) }) {
					w.sleep(1, func(int) Request { return h }, nil, nil)
				}
				busy = true
			}
			if busy {
				p.reset()
				continue
			}
		} else if p.idle%lockTriesPerYield == lockTriesPerYield-1 || r.isDone(h.gen) {
			runtime.Gosched() // whoever has the lock may need the processor to leave it
			if r.isDone(h.gen) {
				continue
			}
		}
		if !p.remaining(w.e) {
			w.sleep(1, func(int) Request { return h }, nil, nil)
			p.reset()
		}
	}
}

// waitUntil makes progress and sleeps until cond, which is called under the lock, holds; it may be called
// again then. What makes it hold must be the completion of one of n requests, whose handles at gives; or,
// where n is 0, an unexpected message, a failure, or something that is followed by Probes.Wake.
func (w *waiting) waitUntil(n int, at func(i int) Request, cond func() bool) {
	w.waitUntilProbed(n, at, cond, nil)
}

// waitUntilProbed is waitUntil, where n is 0, for a message that is probed for.
func (w *waiting) waitUntilProbed(n int, at func(i int) Request, cond func() bool, probed *probed) {
	var p spinBudget
	for ; ; p.attempt(w.e) {
		w.e.mu.Lock()
		ok := cond()
		busy, handled := false, w.e.completionHandler.active()
		seen := w.e.completionHandler.passes.Load()
		if !ok {
			if handled {
				w.e.completionHandler.armRetryLocked()
			} else {
				busy = w.e.progress.poll()
			}
			ok = cond()
		}
		if ok {
			w.passOwnershipLocked()
			w.e.mu.Unlock()
			return
		}
		w.e.mu.Unlock()
		if handled {
			if !p.spinUntil(w.e, func() bool { return w.e.completionHandler.passes.Load() != seen }) {
				w.sleep(n, at, cond, probed)
			}
			busy = true
		}
		if busy {
			p.reset()
		} else if !p.remaining(w.e) {
			w.sleep(n, at, cond, probed)
			p.reset()
		}
	}
}

// waitUnless is waitUntil for a condition other than a request. It also ends when s does, and then returns
// why.
func (w *waiting) waitUnless(s *Canceller, cond func() bool) error {
	if s == nil {
		w.waitUntil(0, nil, cond)
		return nil
	}
	holds := false
	w.waitUntil(0, nil, func() bool {
		holds = cond()
		return holds || s.Err() != nil
	})
	if holds {
		return nil
	}
	return s.Err()
}

// anyDoneLocked tells whether one of n handles has nothing left to wait for.
func (w *waiting) anyDoneLocked(n int, at func(i int) Request) bool {
	w.e.mu.assertHeld()
	for i := range n {
		if h := at(i); h != (Request{}) {
			if r := w.e.Requests.find(h); r == nil || r.completed() || r.waitsForWork() {
				return true
			}
		}
	}
	return false
}

// Wake makes all waiters for something other than a request check their conditions again.
func (q *Probes) Wake() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting.wakeConditionsLocked()
}

// sleep blocks until one of n requests is done or, where n is 0, something may have made cond hold; or until
// it is this goroutine's turn to make progress. It may return early.
func (w *waiting) sleep(n int, at func(i int) Request, cond func() bool, probed *probed) {
	w.e.mu.Lock()
	if n > 0 && w.anyDoneLocked(n, at) || n == 0 && cond() {
		w.e.mu.Unlock()
		return
	}
	w.e.Recovery.connectToSources(probed)
	w.e.stats.Sleeps++
	w.asleep++
	began := time.Since(w.began)
	w.slept -= began
	w.recordWaitsLocked(n, at)
	w.e.recorder.Note(recorder.Sleeps, 0, 0, 0, 0)
	w.e.recorder.Stamp()
	s := w.e.hub.sleepers.get(w.e, n == 0)
	for i := range n {
		if r := w.e.Requests.find(at(i)); r != nil {
			r.manySleepers = r.manySleepers || r.sleeper != nil && r.sleeper != s
			r.sleeper, r.observed = s, true
			if r.sleptAt == 0 {
				r.sleptAt = time.Since(w.began)
			}
		}
	}
	if w.e.hook != nil {
		var r *request
		if n > 0 {
			r = w.e.Requests.find(at(0))
		}
		w.e.hook.sleeps(r, probed)
	}
	if w.descriptions.asked {
		if probed != nil && probed.began == 0 {
			probed.began = began
		}
		w.describeLocked(n, at, probed)
	}
	if w.e.completionHandler.active() {
		w.e.completionHandler.armRetryLocked()
	}
	if s.forCondition {
		w.onConditions++
	}
	if w.e.hub.sleepers.enter(s, !w.e.completionHandler.active()) == owns {
		w.sleepInQueuesLocked()
	} else {
		w.e.mu.Unlock()
		<-s.signal
		w.e.mu.lockWithOrder(s.order)
	}
	if s.forCondition {
		w.onConditions--
	}
	for i := range n {
		if r := w.e.Requests.find(at(i)); r != nil && r.sleeper == s {
			r.sleeper = nil
		}
	}
	w.asleep--
	ended := time.Since(w.began)
	w.slept += ended
	w.e.hub.sleepers.put(s)
	w.e.recorder.Stamp()
	w.e.recorder.Note(recorder.Wakes, 0, 0, 0, 0)
	w.e.mu.Unlock()
	if w.e.hook != nil {
		w.e.hook.slept(ended - began)
	}
}

// sleepInQueuesLocked has the progress owner sleep until there is traffic at some endpoint, and then make
// progress at all of them. It releases the lock during the sleep.
func (w *waiting) sleepInQueuesLocked() {
	w.e.mu.assertHeld()
	quiet := w.readyToSleepLocked()
	others := w.e.hub.several.Load()
	var err error
	if quiet || others {
		w.e.mu.Unlock()
		if others {
			quiet = w.e.hub.othersReadyToSleep(w.e) && quiet
		}
		if quiet {
			err = w.e.hub.queues.sleep()
		}
		w.e.hub.sleepers.leave()
		if others {
			w.e.hub.pollOthers(w.e)
		}
		w.e.mu.Lock()
	} else {
		w.e.hub.sleepers.leave()
	}
	if err != nil && w.e.stopped == nil {
		w.e.failLocked(err)
	}
	w.e.progress.poll()
}

// readyToSleepLocked does what must not wait for traffic, and has the queues of the endpoint end the next
// sleep when traffic comes. It returns false if there is more to do at once.
func (w *waiting) readyToSleepLocked() bool {
	w.e.mu.assertHeld()
	w.e.progress.beginPass()
	w.e.progress.advanceDeferred()
	if w.e.progress.moreToCopy() {
		return false
	}
	w.e.progress.armLocked()
	return true
}

// recordedWaits is how many of the receives that a goroutine sleeps for are recorded.
const recordedWaits = 8

// recordWaitsLocked records the receives that a goroutine is about to sleep for. None is recorded when it is
// posted: there are as many receives as messages, and a message tells of the receive that it has served.
func (w *waiting) recordWaitsLocked(n int, at func(i int) Request) {
	w.e.mu.assertHeld()
	for i := range min(n, recordedWaits) {
		if r := w.e.Requests.find(at(i)); r != nil && r.kind == kindRecv && !r.completed() {
			w.e.recorder.Note(recorder.Posted, r.posted.Context, r.rank, int(r.posted.Tag), r.bufferLen())
		}
	}
}

// timeAsleepLocked is how long goroutines have slept, with those that sleep now.
func (w *waiting) timeAsleepLocked() time.Duration {
	w.e.mu.assertHeld()
	return w.slept + time.Duration(w.asleep)*time.Since(w.began)
}
