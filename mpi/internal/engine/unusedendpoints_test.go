package engine

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// An endpoint on which no communicator lives costs a rank next to nothing.
func TestUnusedEndpointsCostNothing(t *testing.T) {
	for name, devices := range map[string]func() []transport.Device{
		"tcp": func() []transport.Device { return tcpDevices(t, 1) },
		"shm": func() []transport.Device { return shmDevices(t, 1, shm.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(endpoints int) (bytes int, held [3]int) {
				before, heldBefore := usedMemory(), holds(t)
				h := worldOf(t, devices(), Config{Endpoints: endpoints})[0].hub
				bytes, held = usedMemory()-before, holds(t)
				for i := range held {
					held[i] -= heldBefore[i]
				}
				require.Equal(t, endpoints, h.Endpoints())
				require.False(t, h.Several())
				return bytes, held
			}
			cost(1) // with what the first of a process costs
			one, heldByOne := cost(1)
			all, heldByAll := cost(MaxEndpoints)
			require.Less(t, all-one, (MaxEndpoints-1)*4<<10)
			require.Equal(t, heldByOne, heldByAll)
		})
	}
}

// usedMemory is how many bytes this process has allocated since it began.
func usedMemory() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.TotalAlloc)
}

// holds is what else it has: bytes of memory for peers, goroutines and descriptors.
func holds(t *testing.T) [3]int {
	descriptors, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return [3]int{int(sys.Mapped()), runtime.NumGoroutine(), len(descriptors)}
}
