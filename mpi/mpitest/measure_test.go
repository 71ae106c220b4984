package mpitest_test

import (
	"context"
	"math/bits"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// slow has costs that are easily told apart.
var slow = mpitest.Network{Latency: 100 * time.Microsecond, Bandwidth: 1e9, Overhead: 10 * time.Microsecond}

// short is how long a short message takes on slow: the latency, and the overhead of its receiver.
const short = 110 * time.Microsecond

// requireAbout compares simulated times, up to the time of some bytes of headers.
func requireAbout(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.InEpsilon(t, want, got, 0.01, "%v, not %v", got, want)
}

func TestMeasure_Messages(t *testing.T) {
	res := mpitest.Measure(t, 2, func(_ context.Context, world *mpi.Comm) error {
		for range 10 {
			if _, err := pingPong(world, 8); err != nil {
				return err
			}
		}
		return nil
	}, mpitest.On(slow))
	require.Equal(t, []uint64{10, 10}, res.Messages)
	require.Equal(t, []uint64{80, 80}, res.Bytes)
	require.Equal(t, []int{20, 19}, res.Rounds)
	requireAbout(t, 20*short, res.Time)
}

// pingPong sends n bytes to rank 1 and back.
func pingPong(world *mpi.Comm, n int) (mpi.Status, error) {
	buf := make([]byte, n)
	if world.Rank() == 0 {
		if err := mpi.Send(world, buf, 1, 0); err != nil {
			return mpi.Status{}, err
		}
		return mpi.Recv(world, buf, 1, 0)
	}
	status, err := mpi.Recv(world, buf, 0, 0)
	if err != nil {
		return status, err
	}
	return status, mpi.Send(world, buf, 0, 0)
}

// Many bytes take the time of the link, and of the processors that copy them; what is behind them waits.
func TestMeasure_Bytes(t *testing.T) {
	const n = 8 << 20
	for rate, want := range map[float64]time.Duration{
		0:   n * time.Nanosecond,     // the link's time for a byte
		2e8: n * 5 * time.Nanosecond, // the processor's
	} {
		network := slow
		network.Copy = rate
		res := mpitest.Measure(t, 2, func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 1 {
				_, err := mpi.Recv(world, make([]byte, n), 0, 0)
				return err
			}
			return mpi.Send(world, make([]byte, n), 1, 0)
		}, mpitest.On(network))
		require.InEpsilon(t, want, res.Time, 0.1, "%v", res.Time)
		require.Equal(t, []uint64{1, 0}, res.Messages)
		require.Equal(t, []uint64{n, 0}, res.Bytes)
	}
}

// The root of a binomial tree sends to the ranks that differ from it in one bit, and so on.
func TestMeasure_RoundsOfATree(t *testing.T) {
	res := mpitest.Measure(t, 16, func(_ context.Context, world *mpi.Comm) error {
		return mpi.Bcast(world, []float64{1}, 0)
	}, mpitest.On(slow), mpitest.Config(mpi.Config{Settings: map[string]string{"WEFT_COLL": "bcast:binomial"}}))
	messages := uint64(0)
	for rank, n := range res.Messages {
		messages += n
		require.Equal(t, bits.OnesCount(uint(rank)), res.Rounds[rank], "rank %d", rank)
	}
	require.Equal(t, uint64(15), messages)
}

// Time that a rank sleeps is time that it computes.
func TestMeasure_Sleep(t *testing.T) {
	res := mpitest.Measure(t, 2, func(_ context.Context, world *mpi.Comm) error {
		time.Sleep(time.Second)
		_, err := pingPong(world, 8)
		return err
	}, mpitest.On(slow))
	requireAbout(t, time.Second+2*short, res.Time)
}

// ranksVariable is how many ranks TestMeasure_ManyRanks has.
const ranksVariable = "MPITEST_RANKS"

// Many ranks exchange halos and reduce.
func TestMeasure_ManyRanks(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(ranksVariable))
	if err != nil {
		n = 64
	}
	begun := time.Now()
	res := mpitest.Measure(t, n, func(_ context.Context, world *mpi.Comm) error {
		next, previous := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		halo, in := make([]float64, 1000), make([]float64, 1000)
		for range 10 {
			_, err := mpi.Sendrecv(world, halo, next, 1, in, previous, 1)
			if err != nil {
				return err
			}
			if _, err := mpi.Sendrecv(world, halo, previous, 2, in, next, 2); err != nil {
				return err
			}
			if err := mpi.Allreduce(world, mpi.InPlace[float64](), halo[:1], mpi.Sum[float64]()); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d ranks: %v simulated in %v", n, res.Time, time.Since(begun))
	for rank := range n {
		require.GreaterOrEqual(t, res.Messages[rank], uint64(20))
		require.GreaterOrEqual(t, res.Bytes[rank], uint64(20*8000))
	}
}
