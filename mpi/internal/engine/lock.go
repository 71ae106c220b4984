package engine

import (
	"runtime"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
)

// Lock guards an engine, or what is as busy. It is a mutex whose holder sees whether others want it, since he
// may hold it for long while he looks for messages, and which costs one uncontended atomic that is compiled
// into the caller: to leave it no store has to have reached the other cores.
//
// Who leaves it stores that, and then looks whether somebody waits; who waits says so, and then looks whether
// the lock is free. One of them has to see the other, so each needs a full barrier in between. Once this
// process takes part in barriers of all threads at once (as shared memory has it do) only who is about to
// block pays for them. That may become so at any time: who leaves the lock and finds it so sees those who
// wait and have not.
type Lock struct {
	held    uint32
	queue   atomic.Int32  // goroutines in wait
	handoff chan struct{} // has a token when the lock was left while somebody waited
}

// Init makes it ready for use.
func (l *Lock) Init() { l.handoff = make(chan struct{}, 1) }

// Lock blocks until the lock is the caller's.
func (l *Lock) Lock() {
	if !l.TryLock() {
		l.wait()
	}
}

// TryLock takes the lock if nobody has it.
func (l *Lock) TryLock() bool { return atomic.CompareAndSwapUint32(&l.held, 0, 1) }

// Unlock leaves it to whoever comes first.
func (l *Lock) Unlock() {
	if sys.Joined() {
		sys.StoreRelease32(&l.held, 0)
	} else {
		atomic.StoreUint32(&l.held, 0)
	}
	if l.queue.Load() > 0 {
		l.wakeOne()
	}
}

// wanted tells whether somebody waits for the lock.
func (l *Lock) wanted() bool { return l.queue.Load() > 0 }

// lockTries is how often a waiter tries before it blocks: the lock is rarely held for long.
const lockTries = 20

// wait counts the caller before its last try: so whoever leaves the lock after that sees it, and calls.
func (l *Lock) wait() {
	l.queue.Add(1)
	defer l.queue.Add(-1)
	for {
		for range lockTries {
			if atomic.LoadUint32(&l.held) == 0 && l.TryLock() {
				return
			}
			runtime.Gosched()
		}
		if sys.Joined() && sys.Barrier() != nil {
			continue // it cannot be said whether the call will come
		}
		if l.TryLock() {
			return
		}
		<-l.handoff
	}
}

// wakeOne has one of those who wait try again.
func (l *Lock) wakeOne() {
	select {
	case l.handoff <- struct{}{}:
	default: // one is being called already
	}
}
