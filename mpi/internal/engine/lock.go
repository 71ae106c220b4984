package engine

import (
	"runtime"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
)

// Lock guards an engine, or something as busy. It differs from a sync.Mutex in two ways. Its holder can see
// whether other goroutines want it, since it may hold the lock for long while it polls. And taking it
// uncontended costs one atomic operation, which is inlined into the caller; releasing it waits for no store
// to reach other cores.
//
// A goroutine that releases the lock stores that, and then checks for waiters; a waiter registers, and then
// checks whether the lock is free. One of the two must see the other, so each needs a full barrier in
// between. If this process has joined membarrier(2), as shared memory makes it do, only a goroutine that is
// about to block executes the barriers, for all threads. A process may join at any time: a goroutine that
// releases the lock and finds that it has joined sees the waiters that registered before that.
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

// Unlock releases the lock; whichever goroutine comes first gets it.
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
