package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Flush waits for what was begun before it, and not for what other goroutines begin meanwhile: they may
// always have something under way. Two Flushes wait for different operations here, and end in any order of
// these.
func TestFlushWaitsForWhatWasBegunBefore(t *testing.T) {
	for name, order := range map[string][]int{"in order": {0, 1, 2}, "the first last": {1, 2, 0},
		"the first in the middle": {2, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, tcpDevices(t, 2), Config{Passive: time.Hour})
			connected(t, w)
			windows := windowOf(t, w, 16)
			caller, target := w[0], windows[0].Target(1)
			require.NoError(t, target.Reach(nil))
			var begun [3]*oneSided // of which none is posted: the test ends them
			var flushes [2]sync.WaitGroup
			for i := range begun {
				begun[i] = begunOperation(t, target)
				if i < len(flushes) {
					flushes[i].Go(func() {
						if err := target.FlushLocal(nil); err != nil {
							t.Errorf("FlushLocal: %v", err)
						}
					})
					require.Eventually(t, func() bool {
						caller.mu.Lock()
						defer caller.mu.Unlock()
						return begun[i].awaited
					}, 2*time.Minute, time.Millisecond, "the Flush waits for nothing")
				}
			}
			left := map[int]bool{0: true, 1: true, 2: true}
			for _, i := range order {
				caller.mu.Lock()
				target.dropLocked(begun[i])
				caller.mu.Unlock()
				delete(left, i)
				if !left[0] {
					require.True(t, endsWithin(&flushes[0]), "the first Flush waits with %v under way", left)
				}
				if !left[0] && !left[1] {
					require.True(t, endsWithin(&flushes[1]), "the second Flush waits with %v under way", left)
				}
			}
			for i := range windows {
				require.NoError(t, windows[i].Free())
			}
		})
	}
}

// begunOperation is an operation that is under way until it is dropped.
func begunOperation(t *testing.T, target *Target) *oneSided {
	t.Helper()
	target.w.e.mu.Lock()
	defer target.w.e.mu.Unlock()
	o, err := target.newOperationLocked(target.w.e.peerLocked(target.rank), nil)
	require.NoError(t, err)
	return o
}
