package engine

import (
	"runtime"
	"sync/atomic"
)

// lock guards an engine. It is a mutex whose holder sees whether others want it, since he may hold it for long while he looks for messages, and
// which costs two uncontended atomics that are compiled into the caller.
type lock struct {
	held  atomic.Uint32
	queue atomic.Int32  // goroutines in wait
	turn  chan struct{} // has a token when the lock was left while somebody waited
}

func (l *lock) init() { l.turn = make(chan struct{}, 1) }

// Lock blocks until the lock is the caller's.
func (l *lock) Lock() {
	if !l.held.CompareAndSwap(0, 1) {
		l.wait()
	}
}

// TryLock takes the lock if nobody has it.
func (l *lock) TryLock() bool { return l.held.CompareAndSwap(0, 1) }

// Unlock leaves it to whoever comes first.
func (l *lock) Unlock() {
	l.held.Store(0)
	if l.queue.Load() > 0 {
		l.call()
	}
}

// wanted tells whether somebody waits for the lock.
func (l *lock) wanted() bool { return l.queue.Load() > 0 }

// lockTries is how often a waiter tries before it blocks: the lock is rarely held for long.
const lockTries = 20

// wait counts the caller before its last try: so whoever leaves the lock after that sees it, and calls.
func (l *lock) wait() {
	l.queue.Add(1)
	defer l.queue.Add(-1)
	for {
		for range lockTries {
			if l.held.Load() == 0 && l.held.CompareAndSwap(0, 1) {
				return
			}
			runtime.Gosched()
		}
		if l.held.CompareAndSwap(0, 1) {
			return
		}
		<-l.turn
	}
}

// call has one of those who wait try again.
func (l *lock) call() {
	select {
	case l.turn <- struct{}{}:
	default: // one is being called already
	}
}
