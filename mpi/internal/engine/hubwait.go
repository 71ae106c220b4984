package engine

import (
	"runtime"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/program"
)

// Spread is requests of several endpoints of a rank. Its methods behave as those of Requests do, but lock the
// endpoints one after another, so a request that completes meanwhile may be seen or not.
type Spread struct {
	N  int
	At func(i int) (*Engine, Request) // the endpoint and the handle; nil for a zero handle
}

// WaitSome is Requests.WaitSome.
func (q Spread) WaitSome(h *Hub, limit int, take func(i int, st *Status, err error)) int {
	start := h.conf.Hook.begin(CallWait, 0)
	defer h.conf.Hook.end(CallWait, start, AnySource, AnyTag, 0)
	var p spinBudget
	for {
		taken, active, e := q.collectSome(limit, take)
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
			q.sleep(h, e)
			p.reset()
		}
	}
}

// TestSome is Requests.TestSome.
func (q Spread) TestSome(h *Hub, limit int, take func(i int, st *Status, err error)) (taken int,
	active bool) {
	start := h.conf.Hook.begin(CallTest, 0)
	defer h.conf.Hook.end(CallTest, start, AnySource, AnyTag, 0)
	if taken, active, _ = q.collectSome(limit, take); taken == 0 && active {
		h.pollAll()
		taken, active, _ = q.collectSome(limit, take)
	}
	return taken, active
}

// TestAll is Requests.TestAll.
func (q Spread) TestAll(h *Hub, take func(i int, st *Status, err error)) bool {
	start := h.conf.Hook.begin(CallTest, 0)
	defer h.conf.Hook.end(CallTest, start, AnySource, AnyTag, 0)
	if !q.allDone() {
		if h.pollAll(); !q.allDone() {
			return false
		}
	}
	q.collectSome(q.N, take)
	return true
}

func (q Spread) allDone() bool {
	for i := range q.N {
		e, handle := q.At(i)
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
func (q Spread) collectSome(limit int, take func(i int, st *Status, err error)) (taken int, active bool,
	left *Engine) {
	for i := 0; i < q.N && taken < limit; i++ {
		e, handle := q.At(i)
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

// sleep sleeps until one of the requests is done, or it is this goroutine's turn to make progress. It may
// return early. The sleep is counted at endpoint e.
func (q Spread) sleep(h *Hub, e *Engine) {
	s := h.sleepers.get(nil, false)
	began, d := e.waiting.beginSleep()
	done := false
	for i := range q.N {
		if o, handle := q.At(i); o != nil {
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
	for i := range q.N {
		if o, handle := q.At(i); o != nil {
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
	t.e.waiting.setSleeper(r, s)
	if d != nil {
		t.e.waiting.addOperation(d, r)
	}
	return false
}

// setSleeper registers a sleeper that the completion of a request wakes.
func (w *waiting) setSleeper(r *request, s *sleeper) {
	r.manySleepers = r.manySleepers || r.sleeper != nil && r.sleeper != s
	r.sleeper, r.observed = s, true
	if r.sleptAt == 0 {
		r.sleptAt = time.Since(w.began)
	}
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
	if w.describing.Load() {
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
	if w.describing.Load() {
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
