package engine

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/recorder"
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
			cost := func(endpoints int) (bytes int, held holding) {
				before, heldBefore := usedMemory(), holds(t)
				h := worldOf(t, devices(), Config{Endpoints: endpoints})[0].hub
				bytes, held = usedMemory()-before, holds(t)
				held.mapped -= heldBefore.mapped
				held.goroutines -= heldBefore.goroutines
				held.descriptors -= heldBefore.descriptors
				require.Equal(t, endpoints, h.Endpoints())
				require.False(t, h.Several())
				return bytes, held
			}
			cost(1) // with what the first of a process costs
			one, heldByOne := cost(1)
			all, heldByAll := cost(MaxEndpoints)
			require.Less(t, all-one, (MaxEndpoints-1)*4<<10)
			require.Equal(t, heldByOne.mapped, heldByAll.mapped)
			require.Equal(t, heldByOne.descriptors, heldByAll.descriptors)
			require.Less(t, heldByAll.goroutines-heldByOne.goroutines, MaxEndpoints-1, aboutToEnd)
		})
	}
}

// An endpoint that has been made and has no messages costs a rank less than 32 KiB, beside the ring of its
// recorder, whose pages are there when events are written to them.
func TestMadeEndpointsCostLittle(t *testing.T) {
	for name, devices := range map[string]func() []transport.Device{
		"tcp": func() []transport.Device { return tcpDevices(t, 1) },
		"shm": func() []transport.Device { return shmDevices(t, 1, shm.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			h := worldOf(t, devices(), Config{Endpoints: MaxEndpoints})[0].hub
			_, err := h.Endpoint(1) // with what the second of a process costs
			require.NoError(t, err)
			before, heldBefore := usedMemory(), holds(t)
			for number := 2; number < MaxEndpoints; number++ {
				_, err := h.Endpoint(number)
				require.NoError(t, err)
			}
			const made = MaxEndpoints - 2
			ring := recorder.Size / MaxEndpoints
			require.Less(t, (usedMemory()-before)/made-ring, 32<<10)
			held := holds(t)
			require.Equal(t, heldBefore.mapped, held.mapped)
			require.Less(t, held.goroutines-heldBefore.goroutines, made, aboutToEnd)
		})
	}
}

// usedMemory is how many bytes this process has allocated since it began.
func usedMemory() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.TotalAlloc)
}

// holding is what else it has: bytes of memory for peers, goroutines and descriptors.
type holding struct{ mapped, goroutines, descriptors int }

// aboutToEnd is why the number of goroutines is not compared to one.
const aboutToEnd = "not one for each endpoint; some of the set-up may have been about to end"

func holds(t *testing.T) holding {
	descriptors, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return holding{int(sys.Mapped()), runtime.NumGoroutine(), len(descriptors)}
}
