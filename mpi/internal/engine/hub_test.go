package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport/shm"
)

// TestHub_CrowdedWhereEndpointsOutnumberCores: goroutines that wait keep neither a lock nor a core for long from
// when more endpoints are in use than the rank has cores, at every endpoint.
func TestHub_CrowdedWhereEndpointsOutnumberCores(t *testing.T) {
	for _, c := range []struct {
		cores     int
		crowdedAt int // endpoints in use
	}{{1, 2}, {2, 3}, {4, 5}, {0, 5}} { // ranks that share their cores give them up in any case
		h := worldOf(t, shmDevices(t, 1, shm.Options{}), Config{SpinTime: time.Second, Cores: c.cores,
			Endpoints: 4})[0].hub
		for used := 1; used <= 4; used++ {
			_, err := h.Endpoint(used - 1)
			require.NoError(t, err)
			crowded := used >= c.crowdedAt
			require.Equal(t, crowded, h.oversubscribed.Load(), "%d endpoints, %d cores", used, c.cores)
			want := math.MaxInt
			if crowded {
				want = oversubscribedLooks
			}
			for e := range h.each() {
				require.Equal(t, want, e.waiting.maxLooks, "%d endpoints, %d cores", used, c.cores)
			}
		}
	}
}
