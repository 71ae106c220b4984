package engine

import "sync/atomic"

// Turns is a deterministic scheduler of the goroutines of ranks that share a process, so that a run of them
// can be repeated. Each lock has Turns of its own, and their maker (package mpitest) connects all of them: at
// any time one goroutine of all ranks has the turn. It keeps the turn after Give until it blocks, so the
// program between two calls is part of a turn.
type Turns interface {
	// Bind is called once, before any Take. leave ends the turns: from then on Take and Give return false.
	// held says whether a goroutine holds the lock at that moment.
	Bind(leave func(held bool))

	// Take blocks until the caller has the turn and the engine's lock. An order other than 0 identifies the
	// caller among the goroutines that wait for the same engine. It returns false at once if the turns have
	// ended.
	Take(order uint64) bool

	// Give releases the lock; false if it was not taken with Take.
	Give() bool

	// Order returns an order for a goroutine that the caller, which has the turn, starts or wakes.
	Order() uint64

	// Other returns the Turns of another lock of the same rank.
	Other() Turns

	// Draw returns a number below n, for a choice that MPI leaves open. The caller has the turn.
	Draw(n int) int
}

// takeTurns makes t schedule the lock. As long as there are turns the lock counts as held, and one goroutine
// as starving, so that taking and releasing it both leave their fast paths, and call takeTurn and pass.
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

// takeTurn takes the lock if it has Turns; else it returns false at once.
func (l *Lock) takeTurn(order uint64) bool {
	if l.turns == nil || !l.turns.Take(order) {
		return false
	}
	atomic.LoadUint32(&l.held) // an acquire
	return true
}

// lockWithOrder is Lock with an order for Turns.Take.
func (l *Lock) lockWithOrder(order uint64) {
	if !l.takeTurn(order) {
		l.Lock()
	}
}

// Go runs f in a new goroutine, which first waits for its turn if there are Turns. The lock may be held.
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

// drawSome decides which of the complete requests a call takes: with which one it begins, and how many at
// most. Turns decide, if there are any.
func (e *Engine) drawSome(n, limit int) (first, most int) {
	t := e.mu.turns
	if t == nil || n < 2 {
		return 0, limit
	}
	return t.Draw(n), 1 + t.Draw(limit)
}

// NewLock returns a lock that a goroutine may hold while it waits in the engine. It has Turns if the engine's
// lock does.
func (e *Engine) NewLock() *Lock {
	l := new(Lock)
	l.Init()
	if t := e.mu.turns; t != nil {
		l.takeTurns(t.Other())
	}
	return l
}
