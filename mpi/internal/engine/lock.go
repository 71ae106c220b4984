package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// Lock guards an engine, or something as busy. It differs from a sync.Mutex in two ways. Its holder can see
// whether other goroutines want it, since it may hold the lock for long while it polls. And taking it
// uncontended costs one atomic operation, which is inlined into the caller; releasing it waits for no store
// to reach other cores. As with a sync.Mutex, a goroutine that has waited for long gets the lock from its
// holder: otherwise goroutines that take it again and again could keep it from the others.
//
// A goroutine that releases the lock stores that, and then checks for waiters; a waiter registers, and then
// checks whether the lock is free. One of the two must see the other, so each needs a full barrier in
// between. If this process has joined membarrier(2), as shared memory makes it do, only a goroutine that is
// about to block executes the barriers, for all threads. A process may join at any time: a goroutine that
// releases the lock and finds that it has joined sees the waiters that registered before that.
type Lock struct {
	held     uint32
	queue    atomic.Int32  // goroutines in wait
	starving atomic.Int32  // of them, those that have waited for long and are blocked
	released chan struct{} // has a token when the lock was released while others waited
	passed   chan struct{} // a goroutine that receives from it holds the lock
	// waits for the lock so far, those of them that ended with its being passed on, and their time in ns
	waits, handOvers atomic.Uint64
	waited           atomic.Int64
	turns            Turns // nil unless the lock is taken in turns: see takeTurns
}

// Init makes it ready for use.
func (l *Lock) Init() { l.released, l.passed = make(chan struct{}, 1), make(chan struct{}) }

// Lock blocks until the lock is the caller's.
func (l *Lock) Lock() {
	if !l.TryLock() {
		l.wait()
	}
}

// TryLock takes the lock if nobody has it.
func (l *Lock) TryLock() bool { return atomic.CompareAndSwapUint32(&l.held, 0, 1) }

// Unlock passes the lock on to a goroutine that is starving. Otherwise it releases the lock, and whichever
// goroutine comes first gets it.
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

// wanted tells whether somebody waits for the lock.
func (l *Lock) wanted() bool { return l.queue.Load() > 0 }

const (
	// lockTries is how often a waiter tries before it blocks: the lock is rarely held for long.
	lockTries = 20
	// patience is how long a waiter leaves it to chance whether it gets the lock, as in sync.Mutex.
	patience = time.Millisecond
)

// wait counts the caller before its last try: so a goroutine that releases the lock after that sees it, and
// wakes it.
func (l *Lock) wait() {
	if l.takeTurn(0) {
		return
	}
	l.queue.Add(1)
	defer l.queue.Add(-1)
	l.waits.Add(1)
	came := time.Now()
	defer func() { l.waited.Add(int64(time.Since(came))) }()
	var began time.Time // when it blocked first
	for starving := false; ; {
		for range lockTries {
			if atomic.LoadUint32(&l.held) == 0 && l.TryLock() {
				return
			}
			if starving {
				break // the lock is passed on to those that are blocked
			}
			runtime.Gosched()
		}
		if sys.Joined() && sys.Barrier() != nil {
			continue // it cannot be said whether the waiter will be seen
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

// receive blocks until the lock is passed on to the caller, or has been released.
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

// pass gives the lock to a goroutine in receive; false if there is none.
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

// wakeOne has one of the waiters try again.
func (l *Lock) wakeOne() {
	select {
	case l.released <- struct{}{}:
	default: // one is being woken already
	}
}
