//go:build (race || assert) && (amd64 || arm64)

package engine

import (
	"fmt"
	"sync"

	"github.com/weft-mpi/weft/internal/sys"
)

// In builds for the race detector and with the build tag assert, the locks of a rank know which goroutine has
// them. A goroutine that takes one against the order (see Hub) panics, as does a function whose name ends in
// Locked if its caller does not have the lock.

// engineLock is the lock of an engine.
type engineLock struct {
	plainLock
	ordered
}

type plainLock = Lock

// orderedMutex is another lock that is in the order.
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

// ordered is who has a lock, and its place in the order. A goroutine takes a lock only while it has none of
// its own level, and none of a later one.
//
// holder is no atomic: a goroutine looks only for itself, and must not order what the lock does not order, or
// the race detector would miss races.
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

// eachOrdered calls f for every lock of the rank.
func (h *Hub) eachOrdered(f func(*ordered)) {
	f(&h.making.ordered)
	for i := range h.engines {
		if e := h.engines[i].Load(); e != nil {
			f(&e.completionHandler.moving.ordered)
			f(&e.mu.ordered)
		}
	}
	f(&h.memory.mu.ordered)
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

// orderLocks gives the locks that the rank has once their places.
func (h *Hub) orderLocks() {
	h.making.ordered = ordered{hub: h, level: levelMaking, name: "the making of endpoints"}
	h.memory.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of memory"}
	h.failed.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of failed ranks"}
	h.sleepers.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of sleepers"}
	h.queues.mu.ordered = ordered{hub: h, level: levelLeaf, name: "the lock of queues"}
}

// orderLocks gives the locks of an endpoint their places.
func (e *Engine) orderLocks() {
	e.completionHandler.moving.ordered = ordered{hub: e.hub, level: levelMoving,
		name: fmt.Sprintf("the moving of the handler of endpoint %d", e.number)}
	e.mu.ordered = ordered{hub: e.hub, level: levelEngine,
		name: fmt.Sprintf("the lock of endpoint %d", e.number)}
}
