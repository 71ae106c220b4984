package mpitest

import (
	"cmp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// turns makes the goroutines of a job take turns, so that a seed repeats a run: one of them runs at a time,
// from when it gets an engine's lock until it wants one again or blocks. Then no goroutine of the bubble can
// go on, as synctest.Wait reports, and the seed decides which is next.
//
// If time or a channel of the program has woken a goroutine, its actions are not part of a turn until it
// wants a lock.
//
// The race detector must not see the turns, which order what the program leaves unordered. So all functions
// that access turns are compiled without it.
type turns struct {
	mu      sync.Mutex
	state   uint64        // of the seed's generator
	first   *turn         // waiting goroutines, in a repeatable order
	alike   bool          // two of them have no known difference
	sites   [256]*site    // known sites
	spare   *turn         // free, for reuse
	orders  uint64        // count of Order
	sum     uint64        // hash of all turns so far
	arrived chan struct{} // of the bubble; has a token when a goroutine has begun to wait
	over    bool
	given   atomic.Uint64  // number of turns
	moved   uint64         // turns of goroutines that do not poll
	fence   *turn          // the goroutine in waitFence; nil for none
	fenced  uint64         // value of moved at the last fence
	engines []*engineTurns // by rank
	locks   []*engineTurns // all locks
}

// engineTurns are the turns of the goroutines of one rank for a lock of its engine.
type engineTurns struct {
	*turns

	rank int
	slow bool // takes turns only if no other rank can
	held bool // the lock
	// the number of Tests and probes that the rank has begun since its last other call, and moved at its last
	// turn
	polled int
	seen   uint64
	leave  func(held bool)
}

// turn is a goroutine that waits for a turn.
type turn struct {
	engine  *engineTurns // nil for a goroutine that needs no engine's lock
	ready   func() bool  // nil, or reports whether it can go on
	granted chan struct{}
	next    *turn

	// the keys that order the goroutines of one rank
	order     uint64
	site      uint64 // where it waits, and in which call
	turn      uint64 // number of turns when it began to wait
	time      int64  // time of the bubble when it began to wait
	goroutine uint64 // its number, once it has been asked; 0 before
	asked     bool   // asked for its number, through granted
}

func newTurns(seed uint64, ranks int) *turns {
	t := &turns{state: seed}
	for rank := range ranks {
		t.engines = append(t.engines, &engineTurns{turns: t, rank: rank})
	}
	t.locks = append(t.locks, t.engines...)
	return t
}

// run gives turns until stop is closed and no goroutine can go on. If all that can go on poll in vain, it
// lets time pass, as others may wait for that.
//
//go:norace
func (t *turns) run(stop <-chan struct{}) {
	raceDisable()
	defer raceEnable()
	pause := shortPause
	for {
		synctest.Wait()
		for t.askAlike() {
			synctest.Wait()
		}
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
		until := time.Now().Add(pause)
		select {
		case <-t.arrived:
		case <-passed:
		case <-stop:
			t.end()
			return
		}
		// Others may have a timer for the same moment, so the chosen case means nothing then.
		if passed == nil || time.Now().Before(until) {
			continue
		}
		synctest.Wait()
		for t.askAlike() {
			synctest.Wait()
		}
		if w := t.choose(true); w != nil {
			pause = min(2*pause, longPause)
			w.granted <- struct{}{}
		}
	}
}

const (
	// manyPolls is the number of consecutive Tests and probes after which a goroutine counts as waiting.
	manyPolls = 32
	// the time between two polls of a waiting goroutine
	shortPause, longPause = time.Microsecond, 10 * time.Millisecond
)

// polls reports whether a goroutine polls repeatedly in vain, while no other has had a turn.
//
//go:norace
func (w *turn) polls() bool {
	return w.engine != nil && w.engine.polled >= manyPolls && w.engine.seen == w.engine.moved
}

//go:norace
func (w *turn) slow() bool { return w.engine != nil && w.engine.slow }

// anyPolls reports whether a goroutine that can go on polls in vain.
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

// choose removes and returns the goroutine that has the next turn; nil if none can go on. It skips those that
// poll in vain, unless polling is set.
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

// end makes all goroutines go on without turns.
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

// wait blocks until the caller has a turn; false if there are no turns any more.
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
	w.turn, w.time, w.goroutine = t.given.Load(), time.Now().UnixNano(), 0
	t.insert(w)
	t.mu.Unlock()
	select {
	case t.arrived <- struct{}{}:
	default:
	}
	<-w.granted
	for w.asked {
		w.asked, w.goroutine = false, program.GoroutineID()
		<-w.granted
	}
	t.mu.Lock()
	over := t.over
	w.next, t.spare = t.spare, w
	t.mu.Unlock()
	return !over
}

// insert adds a waiting goroutine. The lock is held.
//
//go:norace
func (t *turns) insert(w *turn) {
	at := &t.first
	for *at != nil && w.compare(*at) >= 0 {
		t.alike = t.alike || w.compare(*at) == 0 && w.engine != nil
		at = &(*at).next
	}
	w.next, *at = *at, w
}

// askAlike asks indistinguishable goroutines for their numbers, which are in the order in which one goroutine
// has started them. It returns true if there are any. They answer as soon as they can.
//
//go:norace
func (t *turns) askAlike() (asked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alike {
		return false
	}
	t.alike = false
	list := t.first
	t.first = nil
	for list != nil { // goroutines that have answered move
		w := list
		list = w.next
		t.insert(w)
	}
	if !t.alike {
		return false
	}
	for w := t.first; w.next != nil; w = w.next {
		if w.engine != nil && w.compare(w.next) == 0 {
			w.ask()
			w.next.ask()
		}
	}
	return true
}

//go:norace
func (w *turn) ask() {
	if !w.asked {
		w.asked = true
		w.granted <- struct{}{}
	}
}

// waitFence blocks until no rank can go on, unless none has had a turn since the caller began to wait; with
// again set, it returns even then. It returns false when there are no turns any more. Only one goroutine may
// call it at a time.
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

// takeFence removes and returns the goroutine that waits for a fence; nil for none, or if nothing has
// happened since the last fence.
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

// compare orders waiting goroutines: by rank, then by the keys of a rank's goroutines. Those that need no
// engine's lock come last.
//
//go:norace
func (w *turn) compare(o *turn) int {
	if w.engine == nil || o.engine == nil {
		return cmp.Compare(last(w.engine), last(o.engine))
	}
	return cmp.Or(cmp.Compare(w.engine.rank, o.engine.rank), cmp.Compare(w.order, o.order),
		cmp.Compare(w.site, o.site), cmp.Compare(w.turn, o.turn), cmp.Compare(w.time, o.time),
		cmp.Compare(w.goroutine, o.goroutine))
}

//go:norace
func last(e *engineTurns) int {
	if e == nil {
		return 1
	}
	return 0
}

// draw returns a random number below n by the seed. The lock is held.
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

// Bind sets the function that ends the turns of the lock.
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
		site = e.site()
	}
	return e.wait(e, order, site, nil)
}

// site is where a goroutine waits: the innermost functions of its stack, without those of the lock, as builds
// for the race detector have more of these.
type site struct {
	callers [10]uintptr
	sum     uint64 // hash of their names, which are the same in other builds
}

// site returns the number of the stack of the caller's caller.
//
//go:norace
func (t *turns) site() uint64 {
	raceDisable()
	defer raceEnable()
	var callers [len(site{}.callers)]uintptr
	runtime.Callers(3, callers[:])
	hash := uintptr(0)
	for _, pc := range callers {
		hash = hash*31 + pc
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := &t.sites[hash%uintptr(len(t.sites))]
	if *known == nil || (*known).callers != callers {
		*known = newSite(callers)
	}
	return (*known).sum
}

const (
	siteDepth          = 6 // the number of functions that make a site; the lock has up to four more
	lockMethods        = program.Module + "mpi/internal/engine.(*Lock)."
	checkedLockMethods = program.Module + "mpi/internal/engine.(*engineLock)."
)

//go:norace
func newSite(callers [len(site{}.callers)]uintptr) *site {
	s := &site{callers: callers}
	frames := runtime.CallersFrames(callers[:])
	kept := 0
	for more := true; more && kept < siteDepth; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasPrefix(f.Function, lockMethods) || strings.HasPrefix(f.Function, checkedLockMethods) {
			continue
		}
		kept++
		for i := range len(f.Function) {
			s.sum = mix(s.sum ^ uint64(f.Function[i]))
		}
		s.sum = mix(s.sum) // no line, as that of a deferred call differs between builds
	}
	return s
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

// begins records a call of the rank.
//
//go:norace
func (e *engineTurns) begins(c engine.Call) {
	if c == engine.CallTest || c == engine.CallProbe {
		e.polled++
	} else {
		e.polled = 0
	}
}

// takeTurn makes the caller begin its next turn, if there are turns. The purpose distinguishes turns of the
// same line.
//
//go:norace
func (r *rank) takeTurn(what uint64) {
	e := r.job.turns.engines[r.number]
	if e.wait(e, 0, e.site()^what, nil) {
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
