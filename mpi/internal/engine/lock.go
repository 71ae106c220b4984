package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// Lock is a mutex for an engine. It differs from a sync.Mutex in two ways. Its holder, which may hold the
// lock for long while it polls, can see whether other goroutines want it. And taking it uncontended costs one
// atomic operation, which is inlined into the caller; releasing it does not wait until a store is visible to
// other cores. As with a sync.Mutex, the holder hands the lock over to a goroutine that has waited for long:
// otherwise goroutines that take it again and again could starve others.
//
// A goroutine that releases the lock stores that, and then checks for waiters; a waiter registers, and then
// checks whether the lock is free. One of the two must see the other, so each needs a full barrier in
// between. If this process is registered for membarrier's expedited barrier (sys.JoinBarrier), as shared
// memory makes it do, only a goroutine that is about to block executes the barriers, for all threads. A
// process may register at any time: a goroutine that releases the lock and finds that the process is
// registered sees the waiters that queued before that.
type Lock struct {
	held     uint32
	queue    atomic.Int32  // number of goroutines in wait
	starving atomic.Int32  // number of them that have waited for long and are blocked
	released chan struct{} // has a token if the lock was released while others waited
	passed   chan struct{} // a goroutine that receives from it holds the lock
	// waits for the lock so far; those that ended with a hand-over; the time of all waits in ns
	waits, handOvers atomic.Uint64
	waited           atomic.Int64
	turns            Turns // nil unless the lock is taken in turns: see takeTurns
}

// Init prepares the lock for use.
func (l *Lock) Init() { l.released, l.passed = make(chan struct{}, 1), make(chan struct{}) }

// Lock blocks until the lock is the caller's.
func (l *Lock) Lock() {
	if !l.TryLock() {
		l.wait()
	}
}

// TryLock takes the lock if nobody has it.
func (l *Lock) TryLock() bool { return atomic.CompareAndSwapUint32(&l.held, 0, 1) }

// Unlock hands the lock over to a starving goroutine. If there is none it releases the lock, and the first
// goroutine that tries gets it.
func (l *Lock) Unlock() {
	if l.starving.Load() > 0 && l.pass() {
		return
	}
	if sys.Joined() {
		sys.StoreRelease32(&l.held, 0)
	} else {
		atomic.StoreUint32(&l.held, 0)
	}
	if l.queue.Load() > 0 {
		l.wakeOne()
	}
}

// wanted reports whether a goroutine waits for the lock.
func (l *Lock) wanted() bool { return l.queue.Load() > 0 }

const (
	// lockTries is how often a waiter tries before it blocks: the lock is rarely held for long.
	lockTries = 20
	// patience is how long a waiter competes for the lock before it is starving, as in sync.Mutex.
	patience = time.Millisecond
)

// wait takes the lock when it is free. It counts the caller before its last try, so a goroutine that releases
// the lock after that sees the waiter and wakes it.
func (l *Lock) wait() {
	if l.takeTurn(0) {
		return
	}
	l.queue.Add(1)
	defer l.queue.Add(-1)
	l.waits.Add(1)
	came := time.Now()
	defer func() { l.waited.Add(int64(time.Since(came))) }()
	var began time.Time // when it first blocked
	for starving := false; ; {
		for range lockTries {
			if atomic.LoadUint32(&l.held) == 0 && l.TryLock() {
				return
			}
			if starving {
				break // the lock is handed over to goroutines that are blocked
			}
			runtime.Gosched()
		}
		if sys.Joined() && sys.Barrier() != nil {
			continue // whether the waiter will be seen is unknown
		}
		if l.TryLock() {
			return
		}
		switch {
		case starving:
			if l.receive() {
				l.handOvers.Add(1)
				return
			}
		case began.IsZero():
			began = time.Now()
			<-l.released
		default:
			<-l.released
			starving = time.Since(began) > patience
		}
	}
}

// receive blocks until the lock is handed over to the caller, or was released.
func (l *Lock) receive() (passed bool) {
	l.starving.Add(1)
	defer l.starving.Add(-1)
	select {
	case <-l.released:
		return false
	case <-l.passed:
		return true
	}
}

// pass hands the lock over to a goroutine in receive; false if there is none.
func (l *Lock) pass() bool {
	if l.turns != nil {
		atomic.StoreUint32(&l.held, 1) // a release, which takeTurn acquires
		if l.turns.Give() {
			return true
		}
	}
	select {
	case l.passed <- struct{}{}:
		return true
	default:
		return false
	}
}

// wakeOne wakes one of the waiters to try again.
func (l *Lock) wakeOne() {
	select {
	case l.released <- struct{}{}:
	default: // one is already being woken
	}
}
