//go:build (race || assert) && (amd64 || arm64)

package engine

import (
	"fmt"
	"sync"

	"github.com/weft-mpi/weft/internal/sys"
)

// In builds for the race detector and with the build tag assert, engine locks and ordered mutexes know which
// goroutine holds them. A goroutine that takes one against the order (see Hub) panics, as does a function
// whose name ends in Locked if its caller does not hold the lock.

// engineLock is the lock of an engine.
type engineLock struct {
	plainLock
	ordered
}

type plainLock = Lock

// orderedMutex is a mutex with a level in the order.
type orderedMutex struct {
	plainMutex
	ordered
}

type plainMutex = sync.Mutex

func (l *engineLock) Lock() {
	l.check(false)
	l.plainLock.Lock()
	l.hold()
}

func (l *engineLock) TryLock() bool {
	l.check(true)
	if !l.plainLock.TryLock() {
		return false
	}
	l.hold()
	return true
}

func (l *engineLock) takeTurn(order uint64) bool {
	l.check(false)
	if !l.plainLock.takeTurn(order) {
		return false
	}
	l.hold()
	return true
}

func (l *engineLock) lockWithOrder(order uint64) {
	l.check(false)
	l.plainLock.lockWithOrder(order)
	l.hold()
}

func (l *engineLock) Unlock() {
	l.leave()
	l.plainLock.Unlock()
}

// assertHeld panics if the calling goroutine does not have the lock. A function whose name ends in Locked
// begins with it.
func (l *engineLock) assertHeld() {
	if !l.mine() {
		panic("weft: the engine's lock is not held")
	}
}

func (m *orderedMutex) Lock() {
	m.check(false)
	m.plainMutex.Lock()
	m.hold()
}

func (m *orderedMutex) Unlock() {
	m.leave()
	m.plainMutex.Unlock()
}

// ordered is the holder of a lock, and its level in the order. A goroutine may take a lock only if it holds
// none of the same level or a later one.
//
// holder is not atomic: a goroutine looks only for itself, and an atomic would order accesses that the lock
// does not order, so the race detector would miss races.
type ordered struct {
	hub    *Hub // nil for none: it is not checked
	level  int
	name   string
	holder uintptr // a goroutine; 0 for none
}

// check panics if the calling goroutine may not take the lock, or may not try to.
func (o *ordered) check(tries bool) {
	if o.hub == nil {
		return
	}
	o.hub.eachOrdered(func(other *ordered) {
		if other.level >= o.level && !(tries && other == o) && other.mine() {
			panic(fmt.Sprintf("weft: %s is taken under %s", o.name, other.name))
		}
	})
}

//go:norace
func (o *ordered) hold() { o.holder = sys.Goroutine() }

//go:norace
func (o *ordered) leave() { o.holder = 0 }

//go:norace
func (o *ordered) mine() bool { return o.holder == sys.Goroutine() }

// eachOrdered calls f for every ordered lock of the rank but those of windows, which come and go.
func (h *Hub) eachOrdered(f func(*ordered)) {
	f(&h.making.ordered)
	for i := range h.engines {
		if e := h.engines[i].Load(); e != nil {
			f(&e.completionHandler.moving.ordered)
			f(&e.mu.ordered)
		}
	}
	f(&h.Memory.mu.ordered)
	f(&h.failed.mu.ordered)
	f(&h.sleepers.mu.ordered)
	f(&h.queues.mu.ordered)
}

// The levels, in the order of locks.
const (
	levelMaking = iota
	levelMoving
	levelEngine
	levelLeaf
)

// orderLocks sets the levels of the locks that a rank has once.
func (h *Hub) orderLocks() {
	h.making.ordered = ordered{hub: h, level: levelMaking, name: "the making of endpoints"}
	h.Memory.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of memory"}
	h.failed.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of failed ranks"}
	h.sleepers.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of sleepers"}
	h.queues.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of queues"}
}

// orderLocks sets the level of a window's mutex.
func (w *Window) orderLocks() {
	w.changing.ordered = ordered{hub: w.e.hub, level: levelLeaf, name: "the mutex of a window's elements"}
}

// orderLocks sets the level of the mutex.
func (a *attachedParts) orderLocks(h *Hub) {
	a.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the mutex of attachments"}
}

// orderLocks sets the levels of an endpoint's locks.
func (e *Engine) orderLocks() {
	e.completionHandler.moving.ordered = ordered{hub: e.hub, level: levelMoving,
		name: fmt.Sprintf("the moving of the handler of endpoint %d", e.number)}
	e.mu.ordered = ordered{hub: e.hub, level: levelEngine,
		name: fmt.Sprintf("the lock of endpoint %d", e.number)}
}
