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

// waiting is how goroutines wait: they spin, yield, sleep. A waiter first makes passes itself, as does every
// other waiter that gets the lock, and now and then at the other endpoints. If that finds nothing for a
// while, it sleeps (see sleepers). With a completion handler, waiters only poll their requests, and sleep.
type waiting struct {
	e            *Engine
	life         context.Context // ends with the engine, and ends its connects
	cancelLife   context.CancelFunc
	began        time.Time       // when the engine was made
	attends      uint32          // calls of attendLocked
	asleep       int             // goroutines that sleep
	onConditions int             // number of these that wait for a condition
	slept        time.Duration   // sum of the ends of sleeps, minus their beginnings, since began
	descriptions descriptions    // of waits, while Describe runs
	describing   atomic.Bool     // Describe runs; changed under the lock
	forLocks     map[uint64]bool // goroutines that wait for the lock of a window
	spinTime     time.Duration   // how long a waiting rank polls before it sleeps
	together     bool            // all ranks are goroutines of this process
	// bound on polls for one message under the lock
	maxLooks  int
	maxYields int          // if the rank shares its core: idle passes before it sleeps
	manyPeers atomic.Bool  // the rank is told of what arrives: it sleeps after yieldsManyPeers
	yielded   atomic.Int64 // likewise: when it last let other goroutines run, since began
}

func (w *waiting) init(e *Engine, c Config) {
	w.e, w.spinTime, w.together, w.began, w.maxLooks = e, c.SpinTime, c.Together, time.Now(), math.MaxInt
	w.life, w.cancelLife = context.WithCancel(context.Background())
}

// wakeConditionsLocked wakes the goroutines that wait for a condition instead of a request.
func (w *waiting) wakeConditionsLocked() {
	w.e.mu.assertHeld()
	if len(w.e.Choices.held) > 0 {
		w.e.Choices.release()
	}
	if w.onConditions > 0 {
		w.e.hub.sleepers.wakeWhere(func(s *sleeper) bool { return s.forCondition && s.e == w.e })
	}
}

// passOwnershipLocked is called by a waiter that is done: it wakes another to be the progress owner if need
// be.
func (w *waiting) passOwnershipLocked() {
	w.e.mu.assertHeld()
	if w.e.hub.sleepers.orphaned.Load() && !w.e.completionHandler.active() {
		w.e.hub.sleepers.passOn()
	}
}

// spinBudget bounds how long a waiter spins.
type spinBudget struct {
	idle    int
	tries   int       // since the last passes at other endpoints
	since   time.Time // start of the spinning
	yielded time.Time // last yield to other goroutines
}

const (
	// a waiter looks at the clock once in so many idle passes
	passesPerClock = 32
	// a waiter makes passes at the other endpoints once in so many attempts at its own
	attemptsPerRound = 16
	// a waiter that shares its core considers once in so many passes whether to let other goroutines run; it
	// does if it last did so more than yieldEvery ago
	passesPerYield = 16
	// a waiter that does not get the lock lets other goroutines run once in so many attempts
	lockTriesPerYield = 64
	// maxLooks of a rank with more endpoints than cores: about a µs
	oversubscribedLooks = 100
	// a waiter lets other goroutines run once in this time, and sooner only if one wants the lock or the rank
	// has several endpoints: each Gosched wakes another thread, usually for nothing, and if ranks share a
	// core that thread competes for it too
	yieldEvery = 100 * time.Microsecond
)

// remaining reports whether to make another pass; false if it is time to sleep.
func (p *spinBudget) remaining(e *Engine) bool {
	p.idle++
	if e.waiting.spinTime == 0 {
		if e.connections.underWay.Load() > 0 {
			return false // a connect needs this core for long, and wakes sleepers
		}
		if e.waiting.describing.Load() {
			return false // it describes its wait when it sleeps; on a busy host its yields take seconds
		}
		e.waiting.yieldCore(p.idle)
		return p.idle < e.waiting.maxYields && (p.idle < yieldsManyPeers || !e.waiting.manyPeers.Load())
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

// yieldCore yields the core to other ranks, and from time to time to other goroutines. If the ranks are
// goroutines, the system's yield would give the core to other programs instead.
func (w *waiting) yieldCore(pass int) {
	if w.together {
		runtime.Gosched()
		return
	}
	if pass%passesPerYield == 0 {
		now := int64(time.Since(w.began))
		if now-w.yielded.Load() > int64(yieldEvery) {
			w.yielded.Store(now)
			runtime.Gosched()
		}
	}
	sys.Yield()
}

// spinUntil spins until cond() is true; a completion handler makes it true. It returns false if it is time to
// sleep.
func (p *spinBudget) spinUntil(e *Engine, cond func() bool) bool {
	for !cond() {
		if !p.remaining(e) {
			return false
		}
	}
	return true
}

// reset starts over after progress. The time of the last yield stays: other goroutines have waited since
// then.
func (p *spinBudget) reset() { *p = spinBudget{yielded: p.yielded, tries: p.tries} }

// attempt counts an attempt of a waiter, and now and then makes passes at the other endpoints: its wait may
// depend on them, and no other goroutine may be waiting there. The lock is not held.
func (p *spinBudget) attempt(e *Engine) {
	if p.tries++; p.tries >= attemptsPerRound {
		p.tries = 0
		e.hub.pollOthers(e)
	}
}

// wait waits for a request and returns its result.
func (w *waiting) wait(r *request) (Status, error) { return w.waitFor(r, r.handle()) }

// waitFor is wait for a handle that other goroutines may wait for too: one of them gets the result.
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
			runtime.Gosched() // the holder of the lock may need the core to release it
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

// waitUntil makes progress and sleeps until cond, which is called under the lock, returns true; it may be
// called once more after that. The event that makes it true must be the completion of one of n requests,
// whose handles at returns; or, if n is 0, an unexpected message, a failure, or an event that is followed by
// Probes.Wake.
func (w *waiting) waitUntil(n int, at func(i int) Request, cond func() bool) {
	w.waitUntilProbed(n, at, cond, nil)
}

// waitUntilProbed is waitUntil with n = 0 for a probe.
func (w *waiting) waitUntilProbed(n int, at func(i int) Request, cond func() bool, probed *probed) {
	var p spinBudget
	for ; ; p.attempt(w.e) {
		w.e.mu.Lock()
		ok := cond()
		busy, handled := false, w.e.completionHandler.active()
		seen := w.e.completionHandler.passes.Load()
		if !ok {
			switch {
			case handled:
				w.e.completionHandler.armRetryLocked()
			case w.e.stopped == nil:
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

// waitUnless is waitUntil for a condition. It also ends when s does, and then returns why.
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

// anyDoneLocked reports whether one of n handles need not be waited for any longer.
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

// Wake makes all goroutines that wait for a condition, instead of a request, check it again.
func (q *Probes) Wake() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting.wakeConditionsLocked()
}

// sleep blocks until one of n requests is complete, or, if n is 0, until cond may have become true; or until
// this goroutine should make progress. It may return early.
func (w *waiting) sleep(n int, at func(i int) Request, cond func() bool, probed *probed) {
	over := func() bool { return n > 0 && w.anyDoneLocked(n, at) || n == 0 && cond() }
	w.e.mu.Lock()
	if over() {
		w.e.mu.Unlock()
		return
	}
	w.e.Recovery.connectToSources(probed)
	if w.e.completionHandler.active() {
		w.e.completionHandler.armRetryLocked()
	}
	if over() { // by that; from here on until the sleep, nothing at this endpoint ends the wait
		w.e.mu.Unlock()
		return
	}
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
			w.setSleeper(r, s)
		}
	}
	if w.e.hook != nil {
		var r *request
		if n > 0 {
			r = w.e.Requests.find(at(0))
		}
		w.e.hook.sleeps(r, probed)
	}
	if w.describing.Load() {
		if probed != nil && probed.began == 0 {
			probed.began = began
		}
		w.describeLocked(n, at, probed)
	}
	if s.forCondition {
		w.onConditions++
	}
	switch w.e.hub.sleepers.enter(s, !w.e.completionHandler.active()) {
	case owns:
		w.sleepInQueuesLocked()
	case parks:
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

// sleepInQueuesLocked is the sleep of the progress owner: it sleeps until there is traffic at some endpoint,
// and then makes passes at all of them. It releases the lock during the sleep.
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
		turn := w.e.mu.takeTurn(0) // before others see what follows, if there are Turns
		w.e.hub.sleepers.leave()
		if others {
			w.e.hub.pollOthers(w.e)
		}
		if !turn {
			w.e.mu.Lock()
		}
	} else {
		w.e.hub.sleepers.leave()
	}
	if err != nil && w.e.stopped == nil {
		w.e.failLocked(err)
	}
	if w.e.stopped == nil { // or its devices may be closed meanwhile
		w.e.progress.poll()
	}
}

// readyToSleepLocked does the work that must not wait for traffic, and arms the endpoint's completion queues,
// so that traffic ends the next sleep. It returns false if there is more to do at once.
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

// recordedWaits bounds the receives of one sleep that are recorded.
const recordedWaits = 8

// recordWaitsLocked records the receives for which a goroutine is about to sleep. Receives are not recorded
// when they are posted: there are as many as messages, and the event of a message implies its receive.
func (w *waiting) recordWaitsLocked(n int, at func(i int) Request) {
	w.e.mu.assertHeld()
	for i := range min(n, recordedWaits) {
		if r := w.e.Requests.find(at(i)); r != nil && r.kind == kindRecv && !r.completed() {
			w.e.recorder.Note(recorder.Posted, r.posted.Context, r.rank, int(r.posted.Tag), r.bufferLen())
		}
	}
}

// timeAsleepLocked returns how long goroutines have slept, including those that sleep now.
func (w *waiting) timeAsleepLocked() time.Duration {
	w.e.mu.assertHeld()
	return w.slept + time.Duration(w.asleep)*time.Since(w.began)
}
