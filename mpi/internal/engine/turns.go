package engine

import "sync/atomic"

// Turns decide in which order the goroutines of ranks that share a process use their engines, so that a run
// of them can be repeated. Each engine has its own Turns. One goroutine of all ranks has the turn; it keeps
// it after Give until it blocks, and so the program between two calls is part of a turn.
type Turns interface {
	// Bind is called once, before any Take. leave ends the turns: from then on Take and Give return false.
	Bind(leave func(held bool))

	// Take blocks until the caller has the turn and the engine's lock. Of goroutines that wait for the same
	// engine, an order other than 0 tells them apart. It returns false, at once, when the turns have ended.
	Take(order uint64) bool

	// Give returns the lock; false if it was not taken with Take.
	Give() bool

	// Order returns an order for a goroutine that the caller, which has the turn, starts or wakes.
	Order() uint64

	// Other returns the Turns of another lock of the same rank.
	Other() Turns

	// Draw returns a number below n, for what MPI leaves open. The caller has the turn.
	Draw(n int) int
}

// takeTurns has the lock taken in turns. It then counts as held, and one goroutine as starving, as long as
// there are turns: so taking and releasing it both leave their fast path, and come to takeTurn and pass.
func (l *Lock) takeTurns(t Turns) {
	l.turns, l.held = t, 1
	l.starving.Add(1)
	t.Bind(func(held bool) {
		l.starving.Add(-1)
		if !held {
			atomic.StoreUint32(&l.held, 0)
		}
	})
}

// takeTurn takes the lock if it is taken in turns; else it returns false at once.
func (l *Lock) takeTurn(order uint64) bool {
	if l.turns == nil || !l.turns.Take(order) {
		return false
	}
	atomic.LoadUint32(&l.held) // an acquire
	return true
}

// lockWithOrder is Lock, where order tells the caller from others that wait.
func (l *Lock) lockWithOrder(order uint64) {
	if !l.takeTurn(order) {
		l.Lock()
	}
}

// Go runs f in a goroutine of its own, which begins with a turn where there are turns. The lock may be held.
func (e *Engine) Go(f func()) {
	t := e.mu.turns
	if t == nil {
		go f()
		return
	}
	order := t.Order()
	go func() {
		e.mu.lockWithOrder(order)
		e.mu.Unlock()
		f()
	}()
}

// drawSome has the turns decide, where there are any, which of the requests that are complete a call takes:
// with which one it begins, and how many at most.
func (e *Engine) drawSome(n, limit int) (first, most int) {
	t := e.mu.turns
	if t == nil || n < 2 {
		return 0, limit
	}
	return t.Draw(n), 1 + t.Draw(limit)
}

// NewLock returns a lock for what a goroutine keeps while it waits in the engine. It is taken in turns where
// the engine's lock is.
func (e *Engine) NewLock() *Lock {
	l := new(Lock)
	l.Init()
	if t := e.mu.turns; t != nil {
		l.takeTurns(t.Other())
	}
	return l
}
