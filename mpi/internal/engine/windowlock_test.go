//go:build linux

package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// Ranks get the lock of a part of a window in the order in which they have come for it: whoever unlocks, and wants
// it again, comes after those that wait.
func TestWindowLock_InOrder(t *testing.T) {
	const size = 4
	for name, devices := range map[string]func() []transport.Device{
		"shm": func() []transport.Device { return shmDevices(t, size, shm.Options{}) },
		"tcp": func() []transport.Device { return tcpDevices(t, size) },
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, devices(), Config{})
			windows := windowOf(t, w, 1)
			for _, win := range windows {
				require.NoError(t, win.Target(0).Reach(nil))
			}
			own := &windows[0].Target(0).Control
			tickets := func() uint64 {
				w[0].mu.Lock()
				w[0].progress.poll() // or nobody answers the others
				w[0].mu.Unlock()
				n, err := own.load(wordNext)
				require.NoError(t, err)
				return n
			}
			var mu sync.Mutex // the race detector does not know the lock of a window
			var order []int
			over := make(chan error, size)
			lock := func(rank int) error {
				c := &windows[rank].Target(0).Control
				err := c.Lock(true, nil)
				if err == nil {
					mu.Lock()
					order = append(order, rank)
					mu.Unlock()
					err = c.Unlock(true, nil)
				}
				return err
			}
			require.NoError(t, own.Lock(true, nil))
			for _, rank := range []int{2, 3, 1} {
				before := tickets()
				go func() { over <- lock(rank) }()
				require.Eventually(t, func() bool { return tickets() == before+1 }, time.Minute, time.Millisecond)
			}
			require.NoError(t, own.Unlock(true, nil))
			require.NoError(t, lock(0))
			for range size - 1 {
				require.NoError(t, <-over)
			}
			require.Equal(t, []int{2, 3, 1, 0}, order)
			for _, win := range windows {
				require.NoError(t, win.Free())
			}
		})
	}
}
