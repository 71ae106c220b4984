//go:build (race || assert) && (amd64 || arm64)

package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A goroutine that takes the locks of a rank against their order panics.
func TestLockOrder(t *testing.T) {
	first := worldOf(t, tcpDevices(t, 1), Config{Endpoints: 2})[0]
	h := first.hub
	second, err := h.Endpoint(1)
	require.NoError(t, err)
	levels := [][]sync.Locker{
		{&h.making},
		{&first.completionHandler.moving, &second.completionHandler.moving},
		{&first.mu, &second.mu},
		{&h.Memory.mu, &h.failed.mu, &h.sleepers.mu, &h.queues.mu},
	}
	for i, level := range levels {
		for _, held := range level {
			held.Lock()
			for k, others := range levels {
				for _, l := range others {
					if k <= i {
						require.Panics(t, l.Lock, "level %d under level %d", k, i)
						continue
					}
					l.Lock()
					l.Unlock()
				}
			}
			held.Unlock()
		}
	}
	w, a := &Window{e: first}, &attachedParts{}
	w.orderLocks()
	a.orderLocks(h)
	for _, l := range []sync.Locker{&w.changing, &a.mu} {
		for _, leaf := range levels[len(levels)-1] {
			leaf.Lock()
			require.Panics(t, l.Lock, "a leaf of a window under another leaf")
			leaf.Unlock()
		}
		first.mu.Lock()
		l.Lock()
		l.Unlock()
		first.mu.Unlock()
	}
	first.mu.Lock()
	require.Panics(t, func() { second.mu.TryLock() })
	require.Panics(t, second.mu.assertHeld)
	first.mu.assertHeld()
	var other sync.WaitGroup
	other.Go(func() { // what another goroutine holds is no matter
		require.Panics(t, first.mu.assertHeld)
		require.False(t, first.mu.TryLock())
		second.mu.Lock()
		second.mu.Unlock()
	})
	other.Wait()
	first.mu.Unlock()
}
