package engine

import (
	"runtime"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/program"
)

// The calls below complete several requests of several endpoints. For each of n requests, at returns the
// endpoint and the handle, or nil for a zero handle. They behave as Requests.WaitSome does, but lock the
// endpoints one after another, so a request that completes meanwhile may be seen or not.

// WaitSome is Requests.WaitSome.
func (h *Hub) WaitSome(n int, at func(i int) (*Engine, Request), limit int,
	take func(i int, st *Status, err error)) int {
	start := h.conf.Hook.begin(CallWait, 0)
	defer h.conf.Hook.end(CallWait, start, AnySource, AnyTag, 0)
	var p spinBudget
	for {
		taken, active, e := h.collectSome(n, at, limit, take)
		if taken > 0 || !active {
			if e := h.first(); h.sleepers.orphaned.Load() && !e.completionHandler.active() {
				h.sleepers.passOn()
			}
			return taken
		}
		switch {
		case h.pollAll():
			p.reset()
		case !p.remaining(e):
			h.sleepFor(n, at, e)
			p.reset()
		}
	}
}

// TestSome is Requests.TestSome.
func (h *Hub) TestSome(n int, at func(i int) (*Engine, Request), limit int,
	take func(i int, st *Status, err error)) (taken int, active bool) {
	start := h.conf.Hook.begin(CallTest, 0)
	defer h.conf.Hook.end(CallTest, start, AnySource, AnyTag, 0)
	if taken, active, _ = h.collectSome(n, at, limit, take); taken == 0 && active {
		h.pollAll()
		taken, active, _ = h.collectSome(n, at, limit, take)
	}
	return taken, active
}

// TestAll is Requests.TestAll.
func (h *Hub) TestAll(n int, at func(i int) (*Engine, Request), take func(i int, st *Status,
	err error)) bool {
	start := h.conf.Hook.begin(CallTest, 0)
	defer h.conf.Hook.end(CallTest, start, AnySource, AnyTag, 0)
	if !h.allDone(n, at) {
		if h.pollAll(); !h.allDone(n, at) {
			return false
		}
	}
	h.collectSome(n, at, n, take)
	return true
}

func (h *Hub) allDone(n int, at func(i int) (*Engine, Request)) bool {
	for i := range n {
		e, handle := at(i)
		if e == nil {
			continue
		}
		e.mu.Lock()
		done := e.Requests.allDone(1, func(int) Request { return handle })
		e.mu.Unlock()
		if !done {
			return false
		}
	}
	return true
}

// collectSome passes up to limit complete requests to take. It also returns the endpoint of one that is not
// complete.
func (h *Hub) collectSome(n int, at func(i int) (*Engine, Request), limit int,
	take func(i int, st *Status, err error)) (taken int, active bool, left *Engine) {
	for i := 0; i < n && taken < limit; i++ {
		e, handle := at(i)
		if e == nil {
			continue
		}
		active = true
		e.mu.Lock()
		found, _ := e.Requests.collectFrom(0, 1, func(int) Request { return handle }, 1,
			func(_ int, st *Status, err error) { take(i, st, err) })
		e.mu.Unlock()
		if taken += found; found == 0 {
			left = e
		}
	}
	return taken, active, left
}

// pollAll makes a pass at every endpoint whose lock is free, and reports whether anything happened.
func (h *Hub) pollAll() (busy bool) {
	for e := range h.each() {
		if !e.mu.TryLock() {
			continue
		}
		if e.completionHandler.active() {
			e.completionHandler.armRetryLocked()
		} else if e.stopped == nil {
			busy = e.progress.poll() || busy
		}
		e.mu.Unlock()
	}
	return busy
}

// sleepFor sleeps until one of the requests is done, or it is this goroutine's turn to make progress. It may
// return early. The sleep is counted at endpoint e.
func (h *Hub) sleepFor(n int, at func(i int) (*Engine, Request), e *Engine) {
	s := h.sleepers.get(nil, false)
	began, d := e.waiting.beginSleep()
	done := false
	for i := range n {
		if o, handle := at(i); o != nil {
			done = o.Requests.addSleeper(handle, s, d) || done
		}
	}
	e.waiting.describeAs(d)
	if !done {
		switch h.sleepers.enter(s, !e.completionHandler.active()) {
		case owns:
			if h.othersReadyToSleep(nil) {
				if err := h.queues.sleep(); err != nil {
					e.fail(err)
				}
			}
			h.sleepers.leave()
			h.pollAll()
		case parks:
			<-s.signal
		}
	}
	for i := range n {
		if o, handle := at(i); o != nil {
			o.Requests.removeSleeper(handle, s)
		}
	}
	h.sleepers.put(s)
	e.waiting.endSleep(began)
}

// addSleeper registers a sleeper that the completion of a request wakes. It returns true if there is nothing
// to wait for. It adds the request to the description d of the wait, unless d is nil. It takes the lock.
func (t *Requests) addSleeper(handle Request, s *sleeper, d *Wait) (done bool) {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	r := t.find(handle)
	if r == nil || r.completed() || r.waitsForWork() {
		return true
	}
	r.manySleepers = r.manySleepers || r.sleeper != nil && r.sleeper != s
	r.sleeper, r.observed = s, true
	if r.sleptAt == 0 {
		r.sleptAt = time.Since(t.e.waiting.began)
	}
	if d != nil {
		d.Operations = append(d.Operations, r.describe())
		d.Bounded = d.Bounded || r.canceller != nil
		d.Since = max(d.Since, time.Since(t.e.waiting.began)-r.sleptAt)
	}
	return false
}

// removeSleeper undoes addSleeper. It takes the lock.
func (t *Requests) removeSleeper(handle Request, s *sleeper) {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if r := t.find(handle); r != nil && r.sleeper == s {
		r.sleeper = nil
	}
}

// beginSleep counts a sleep that begins. It returns a description to fill in if Describe wants one.
func (w *waiting) beginSleep() (began time.Duration, d *Wait) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.stats.Sleeps++
	w.asleep++
	began = time.Since(w.began)
	w.slept -= began
	w.e.recorder.Stamp()
	if w.descriptions.asked {
		d = &Wait{Goroutine: program.GoroutineID(), Callers: make([]uintptr, maxCallers)}
		d.Callers = d.Callers[:runtime.Callers(3, d.Callers)]
	}
	return began, d
}

// describeAs stores the description of a wait for Describe.
func (w *waiting) describeAs(d *Wait) {
	if d == nil {
		return
	}
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.descriptions.asked {
		w.descriptions.waits[d.Goroutine] = d
	}
}

// endSleep counts the end of a sleep.
func (w *waiting) endSleep(began time.Duration) {
	w.e.mu.Lock()
	w.asleep--
	ended := time.Since(w.began)
	w.slept += ended
	w.e.recorder.Stamp()
	w.e.mu.Unlock()
	if w.e.hook != nil {
		w.e.hook.slept(ended - began)
	}
}

// noteUnsuccessful is called after a Test or a nonblocking probe that found nothing. Every so many of them it
// makes passes at the other endpoints, for a program that only tests. The lock is not held.
func (e *Engine) noteUnsuccessful() {
	if e.hub.several.Load() && e.unsuccessful.Add(1)%attemptsPerRound == 0 {
		e.hub.pollOthers(e)
	}
}
