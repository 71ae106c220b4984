package mpitest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// turns has the goroutines of a job take turns, so that a seed repeats a run: one of them runs at a time,
// from when it gets an engine's lock until it wants one again or blocks. Then no goroutine of the bubble can
// go on, which synctest.Wait tells, and the seed decides who is next.
//
// What a goroutine does that no turn has woken, since time has passed or a channel of the program has, is not
// part of a turn until it wants a lock.
//
// The race detector does not see the turns: they order what the program leaves unordered. So whatever touches
// turns is compiled without it, and calls nothing else that touches them.
type turns struct {
	mu      sync.Mutex
	state   uint64        // of the seed's generator
	first   *turn         // those that wait, in an order that repeats
	spare   *turn         // used and free
	orders  uint64        // handed out by Order
	sum     uint64        // of all turns so far
	arrived chan struct{} // of the bubble; has a token when somebody has begun to wait
	over    bool
	given   atomic.Uint64  // how many turns
	moved   uint64         // turns of those that do not poll
	fence   *turn          // who waits in waitFence; nil for nobody
	fenced  uint64         // moved at the last fence
	engines []*engineTurns // by rank
	locks   []*engineTurns // all that there are
}

// engineTurns are the turns of the goroutines of one rank, as a lock of its engine sees them.
type engineTurns struct {
	*turns

	rank int
	slow bool // takes turns only where no other rank can
	held bool // the lock
	// of the engine's lock: how many Tests and probes the rank has begun since its last other call, and moved
	// at its last turn
	polled int
	seen   uint64
	leave  func(held bool)
}

// turn is a goroutine that waits for one.
type turn struct {
	engine  *engineTurns // nil for one that needs no engine's lock
	ready   func() bool  // nil, or when it can go on
	order   uint64
	site    uint64 // where it waits, which tells those without an order apart
	granted chan struct{}
	next    *turn
}

func newTurns(seed uint64, ranks int) *turns {
	t := &turns{state: seed}
	for rank := range ranks {
		t.engines = append(t.engines, &engineTurns{turns: t, rank: rank})
	}
	t.locks = append(t.locks, t.engines...)
	return t
}

// run gives turns until stop is closed and nobody can go on. Where all that can go on look for what does not
// come, time passes: others may wait for that.
//
//go:norace
func (t *turns) run(stop <-chan struct{}) {
	raceDisable()
	defer raceEnable()
	pause := shortPause
	for {
		synctest.Wait()
		w := t.choose(false)
		if w == nil {
			w = t.takeFence()
		}
		if w != nil {
			pause = shortPause
			w.granted <- struct{}{}
			continue
		}
		var passed <-chan time.Time
		if t.anyPolls() {
			passed = time.After(pause)
		}
		select {
		case <-t.arrived:
		case <-passed:
			synctest.Wait()
			if w := t.choose(true); w != nil {
				pause = min(2*pause, longPause)
				w.granted <- struct{}{}
			}
		case <-stop:
			t.end()
			return
		}
	}
}

const (
	// manyPolls is how many Tests and probes a goroutine makes, one after the other, when it is taken to
	// wait.
	manyPolls = 32
	// the time between two polls of one that waits
	shortPause, longPause = time.Microsecond, 10 * time.Millisecond
)

// polls reports whether a goroutine looks again and again for what has not come, while no other has had a
// turn.
//
//go:norace
func (w *turn) polls() bool {
	return w.engine != nil && w.engine.polled >= manyPolls && w.engine.seen == w.engine.moved
}

//go:norace
func (w *turn) slow() bool { return w.engine != nil && w.engine.slow }

// anyPolls reports whether all that a goroutine does is to look for what has not come.
//
//go:norace
func (t *turns) anyPolls() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := t.first; w != nil; w = w.next {
		if w.polls() && w.eligible() {
			return true
		}
	}
	return false
}

// choose takes the goroutine off that has the next turn; nil if none can go on. It leaves those that poll in
// vain, unless polling is set.
//
//go:norace
func (t *turns) choose(polling bool) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, slow := 0, 0
	for w := t.first; w != nil; w = w.next {
		switch {
		case !polling && w.polls() || !w.eligible():
		case w.slow():
			slow++
		default:
			n++
		}
	}
	onlySlow := n == 0
	if onlySlow {
		n = slow
	}
	if n == 0 {
		return nil
	}
	k := t.draw(n)
	t.sum = mix(t.sum ^ uint64(n)<<32 ^ uint64(k))
	for at := &t.first; ; at = &(*at).next {
		w := *at
		if !polling && w.polls() || w.slow() != onlySlow || !w.eligible() {
			continue
		}
		if k > 0 {
			k--
			continue
		}
		*at, w.next = w.next, nil
		t.given.Add(1)
		if e := w.engine; e != nil {
			e.held = true
			if e.polled < manyPolls {
				t.moved++
			}
			e.seen = t.moved
		}
		return w
	}
}

//go:norace
func (w *turn) eligible() bool {
	if w.engine != nil && w.engine.held {
		return false
	}
	if w.ready == nil {
		return true
	}
	raceEnable()
	defer raceDisable()
	return w.ready()
}

// end has everybody go on without turns.
//
//go:norace
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for _, e := range t.locks {
		if e.leave != nil {
			e.leave(e.held)
		}
	}
	for w := t.first; w != nil; w = w.next {
		w.granted <- struct{}{}
	}
	if t.fence != nil {
		t.fence.granted <- struct{}{}
	}
	t.first, t.fence = nil, nil
}

// wait blocks until the caller has a turn; false if there are none any more.
//
//go:norace
func (t *turns) wait(e *engineTurns, order uint64, site uint64, ready func() bool) bool {
	raceDisable()
	defer raceEnable()
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return false
	}
	w := t.spare
	if w == nil {
		w = &turn{granted: make(chan struct{}, 1)}
	} else {
		t.spare = w.next
	}
	w.engine, w.order, w.site, w.ready = e, order, site, ready
	at := &t.first
	for *at != nil && !w.before(*at) {
		at = &(*at).next
	}
	w.next, *at = *at, w
	t.mu.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default:
	}
	<-w.granted
	t.mu.Lock()
	over := t.over
	w.next, t.spare = t.spare, w
	t.mu.Unlock()
	return !over
}

// waitFence blocks until no rank can go on, unless none has had a turn since the caller began to wait; again
// is whether it is to return all the same. It returns false when there are no turns any more. One goroutine
// may wait so.
//
//go:norace
func (t *turns) waitFence(again bool) bool {
	raceDisable()
	defer raceEnable()
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return false
	}
	w := &turn{granted: make(chan struct{}, 1)}
	t.fence, t.fenced = w, t.moved
	if again {
		t.fenced--
	}
	t.mu.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default:
	}
	<-w.granted
	return !t.over
}

// takeFence takes off who waits for a fence; nil if nobody does, or nothing has happened since the last.
//
//go:norace
func (t *turns) takeFence() *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.fence
	if w == nil || t.moved == t.fenced {
		return nil
	}
	t.fence = nil
	return w
}

// before orders those that wait: by rank, then by what tells goroutines of one rank apart. Of the same place
// in the engine's code and without an order there is one, unless the program itself has several goroutines.
//
//go:norace
func (w *turn) before(o *turn) bool {
	switch {
	case w.engine == nil || o.engine == nil:
		return w.engine != nil
	case w.engine.rank != o.engine.rank:
		return w.engine.rank < o.engine.rank
	case w.order != o.order:
		return w.order < o.order
	}
	return w.site < o.site
}

// draw is a number below n from the seed. The lock is held.
//
//go:norace
func (t *turns) draw(n int) int {
	t.state += 0x9e3779b97f4a7c15
	return int(mix(t.state) % uint64(n))
}

// mix is the output function of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Bind takes what ends the turns of the lock.
//
//go:norace
func (e *engineTurns) Bind(leave func(held bool)) {
	raceDisable()
	e.mu.Lock()
	over := e.over
	e.leave = leave
	e.mu.Unlock()
	raceEnable()
	if over {
		leave(false)
	}
}

// Take blocks until the caller has the turn and the lock.
//
//go:norace
func (e *engineTurns) Take(order uint64) bool {
	var site uint64
	if order == 0 {
		site = stackSum()
	}
	return e.wait(e, order, site, nil)
}

// stackSum is a number for the stack of the caller's caller.
//
//go:norace
func stackSum() (sum uint64) {
	var callers [12]uintptr
	for _, pc := range callers[:runtime.Callers(3, callers[:])] {
		sum = mix(sum ^ uint64(pc))
	}
	return sum
}

//go:norace
func (e *engineTurns) Give() bool {
	raceDisable()
	defer raceEnable()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.held || e.over {
		return false
	}
	e.held = false
	return true
}

//go:norace
func (e *engineTurns) Order() uint64 {
	raceDisable()
	defer raceEnable()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.orders++
	return e.orders
}

//go:norace
func (e *engineTurns) Draw(n int) int {
	raceDisable()
	defer raceEnable()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.draw(n)
}

// begins notes a call of the rank.
//
//go:norace
func (e *engineTurns) begins(c engine.Call) {
	if c == engine.CallTest || c == engine.CallProbe {
		e.polled++
	} else {
		e.polled = 0
	}
}

// takeTurn has the caller begin its next turn, if there are turns.
func (r *rank) takeTurn() {
	if e := r.job.turns.engines[r.number]; e.Take(0) {
		e.Give()
	}
}

// Other returns the turns of another lock of the rank.
//
//go:norace
func (e *engineTurns) Other() engine.Turns {
	raceDisable()
	defer raceEnable()
	o := &engineTurns{turns: e.turns, rank: e.rank, slow: e.slow}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.locks = append(e.locks, o)
	return o
}
