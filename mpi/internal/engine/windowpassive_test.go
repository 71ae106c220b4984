package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// windowOf makes a window of 8-byte integers of the engines of a world.
func windowOf(t *testing.T, w []*Engine, elements int) []*Window {
	t.Helper()
	windows, cards, ranks := make([]*Window, len(w)), make([]WindowCard, len(w)), make([]int, len(w))
	for i, e := range w {
		var err error
		windows[i], cards[i], err = e.Windows.New(3, make([]byte, elements*wordBytes), rma.Type{Kind: rma.Int, Size: 8})
		require.NoError(t, err)
		ranks[i] = i
	}
	for i := range w {
		windows[i].Join(i, ranks, cards)
	}
	return windows
}

// TestPassiveBound counts what WEFT_PASSIVE promises: an operation at a rank that makes no call, and its Flush,
// take two periods at most. The timer's period is an hour here, and the test makes its ticks.
func TestPassiveBound(t *testing.T) {
	w := worldOf(t, tcpDevices(t, 2), Config{Passive: time.Hour})
	connected(t, w)
	windows := windowOf(t, w, 4096)
	caller, target := w[0], windows[0].Target(1)
	passive := &w[1].Windows.passive
	require.True(t, passive.armed, "nothing looks after the window")
	large, small := make([]byte, 16<<10), make([]byte, 8)
	for name, operation := range map[string]func() error{
		"Put":         func() error { return target.Put(small, 0, nil) },
		"a large Put": func() error { return target.Put(large, 0, nil) },
		"Get":         func() error { return target.Get(small, 0, nil) },
		"a large Get": func() error { return target.Get(large, 0, nil) },
		"Accumulate":  func() error { return target.Update(small, nil, nil, 0, rma.Sum, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, operation())
			require.NoError(t, target.beginFlush(nil))
			ticks := 0
			for ; !complete(caller, target); ticks++ {
				require.Less(t, ticks, 2, "periods have passed")
				passive.tick()
			}
			require.NotZero(t, ticks, "somebody else has looked after the window: the test shows nothing")
			require.NoError(t, target.Flush(nil))
		})
	}
	for i := range windows {
		require.NoError(t, windows[i].Free())
	}
}

// TestPassiveWaitsForTheLock: where others have the engine's lock at one tick after another, and make no pass,
// the second tick waits for the lock rather than leave the pass to chance.
func TestPassiveWaitsForTheLock(t *testing.T) {
	w := worldOf(t, tcpDevices(t, 2), Config{Passive: time.Hour})
	connected(t, w)
	windows := windowOf(t, w, 1)
	e, passive := w[1], &w[1].Windows.passive
	e.mu.Lock()
	before := e.stats.Passes
	passive.tick()
	require.Equal(t, before, e.stats.Passes)
	ticked := make(chan struct{})
	go func() {
		passive.tick()
		close(ticked)
	}()
	for !e.mu.wanted() {
		select {
		case <-ticked:
			e.mu.Unlock()
			t.Fatal("a pass is left out again")
		case <-time.After(time.Millisecond):
		}
	}
	require.Equal(t, before, e.stats.Passes)
	e.mu.Unlock()
	<-ticked
	e.mu.Lock()
	require.Equal(t, before+1, e.stats.Passes)
	e.mu.Unlock()
	for i := range windows {
		require.NoError(t, windows[i].Free())
	}
}

// complete makes the caller's passes until nothing is under way at the target, or nothing seems to come: what the
// other has sent is there at once, whatever else the machine does.
func complete(e *Engine, t *Target) bool {
	for range 100 {
		e.mu.Lock()
		e.progress.poll()
		over := t.posted.empty()
		e.mu.Unlock()
		if over {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
