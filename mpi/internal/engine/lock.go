package engine

import (
	"sync"
	"sync/atomic"
)

// lock guards an engine. Whoever holds it for long, because he looks for messages meanwhile, sees whether others want it.
type lock struct {
	sync.Mutex
	queue atomic.Int32 // goroutines in Lock that did not get it at once
}

// Lock blocks until the lock is the caller's.
func (l *lock) Lock() {
	if l.Mutex.TryLock() {
		return
	}
	l.queue.Add(1)
	l.Mutex.Lock()
	l.queue.Add(-1)
}

// wanted tells whether somebody waits for the lock.
func (l *lock) wanted() bool { return l.queue.Load() > 0 }
