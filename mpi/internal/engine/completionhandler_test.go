package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// withHandlers makes engines with completion handlers, on the fabric of that name.
func withHandlers(t *testing.T, fabric string, seed uint64, n int, conf Config) []*Engine {
	t.Helper()
	conf.HandlerCores = []int{0}
	if fabric == "tcp" {
		cores, err := sys.Affinity()
		require.NoError(t, err)
		conf.HandlerCores = cores
	}
	return worldOf(t, fabrics[fabric](t, seed, n), conf)
}

// The random mixture again, where handlers make progress and who waits only watches.
func TestHandler_C1_RandomMixture(t *testing.T) {
	for seed := range uint64(3) {
		w := withHandlers(t, "sim", seed, 3, Config{})
		ranks(t, w, func(e *Engine) error { return mixture(e, 60, 5_000, seed) })
		require.False(t, t.Failed(), "seed %d", seed)
	}
	w := withHandlers(t, "tcp", 0, 3, Config{EagerLimit: 4000})
	ranks(t, w, func(e *Engine) error { return mixture(e, 400, 300_000, 3) })
}

// A rank whose owner calls nothing takes what it has been told of all the same.
func TestHandler_C1_AReceiveCompletesWithoutACall(t *testing.T) {
	for _, fabric := range []string{"sim", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			w := withHandlers(t, fabric, 1, 2, Config{})
			buf := make([]byte, 200_000)
			h, err := w[1].Recvs.Irecv(0, buf, 0, 5, 1)
			require.NoError(t, err)
			passes := w[1].Stats().Passes
			require.NoError(t, w[0].Sends.Ssend(0, make([]byte, len(buf)), 1, 5))
			require.Greater(t, w[1].Stats().Passes, passes)
			_, done, err := w[1].Requests.Test(h)
			require.NoError(t, err)
			require.True(t, done)
		})
	}
}

// The handler is the one driver: the queue cannot be waited on while it has it, and goes back to the callers
// at the end.
func TestHandler_C1_OneDriver(t *testing.T) {
	w := withHandlers(t, "tcp", 1, 2, Config{})
	require.ErrorIs(t, w[0].fabrics[0].cq.Wait(0), transport.ErrInvalid)
	require.NoError(t, w[0].completionHandler.stop())
	require.NoError(t, w[0].fabrics[0].cq.Wait(0))
}
