package engine

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
)

// TestLock_OneAtATimeAndNobodyForgotten has goroutines take turns, some of whom hold the lock until others
// have given up trying and block.
func TestLock_OneAtATimeAndNobodyForgotten(t *testing.T) {
	for range 2 { // as it is at first, and then with barriers of all threads, if the system has any
		var l Lock
		l.Init()
		const goroutines, rounds = 8, 2000
		var all sync.WaitGroup
		taken, blocked := 0, 0
		for g := range goroutines {
			all.Go(func() {
				for i := range rounds {
					l.Lock()
					taken++
					if (i+g)%50 == 0 {
						for range 10 * lockTries {
							runtime.Gosched()
						}
						if l.wanted() {
							blocked++
						}
					}
					l.Unlock()
				}
			})
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			require.Fail(t, "somebody waits for a lock that nobody holds", "joined: %v, %d waiting",
				sys.Joined(), l.queue.Load())
		}
		require.Equal(t, goroutines*rounds, taken)
		require.Positive(t, blocked, "nobody ever waited for long")
		require.True(t, l.TryLock())
		require.False(t, l.wanted())
		sys.JoinBarrier()
	}
}

// TestLock_NobodyStarves has a goroutine take the lock again right after it has left it, always. On one
// processor no other goroutine runs in between, and one that waits gets the lock all the same.
func TestLock_NobodyStarves(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var l Lock
	l.Init()
	l.Lock()
	taken := make(chan struct{})
	go func() {
		l.Lock()
		close(taken)
		l.Unlock()
	}()
	for began := time.Now(); ; {
		runtime.Gosched() // the other tries, and blocks
		l.Unlock()
		if !l.TryLock() {
			break
		}
		require.Less(t, time.Since(began), time.Minute, "the other never gets the lock")
	}
	<-taken
	l.Lock()
	require.Zero(t, l.starving.Load())
	require.False(t, l.wanted())
}
