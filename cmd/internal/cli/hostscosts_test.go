package cli

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// An exchange is what two ranks do again and again while its time is taken. Each of them waits for the other in
// each round, or in every second one.
type exchange func(world *mpi.Comm) (round func(number int) error)

// both has a message go each way at the same time.
func both(size int) exchange {
	return func(world *mpi.Comm) func(int) error {
		out, in, peer := make([]byte, size), make([]byte, size), 1-world.Rank()
		return func(int) error {
			_, err := mpi.Sendrecv(world, out, peer, 1, in, peer, 1)
			return err
		}
	}
}

func pingPong(size int) exchange {
	return func(world *mpi.Comm) func(int) error {
		buf, peer := make([]byte, size), 1-world.Rank()
		return func(int) error {
			if world.Rank() == 1 {
				if _, err := mpi.Recv(world, buf, peer, 0); err != nil {
					return err
				}
			}
			if err := mpi.Send(world, buf, peer, 0); err != nil || world.Rank() == 1 {
				return err
			}
			_, err := mpi.Recv(world, buf, peer, 0)
			return err
		}
	}
}

// bcast has one rank and the other be the root in turn.
func bcast(size int) exchange {
	return func(world *mpi.Comm) func(int) error {
		buf := make([]byte, size)
		return func(round int) error { return mpi.Bcast(world, buf, round%2) }
	}
}

func allreduce(size int) exchange {
	return func(world *mpi.Comm) func(int) error {
		in, out := make([]float64, size/8), make([]float64, size/8)
		return func(int) error { return mpi.Allreduce(world, in, out, mpi.Sum[float64]()) }
	}
}

// halo exchanges the borders of a ring.
func halo(size int) exchange {
	return func(world *mpi.Comm) func(int) error {
		n, out, in := world.Size(), make([]byte, size), make([]byte, size)
		next, previous := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		return func(int) error {
			if _, err := mpi.Sendrecv(world, out, next, 1, in, previous, 1); err != nil {
				return err
			}
			_, err := mpi.Sendrecv(world, out, previous, 2, in, next, 2)
			return err
		}
	}
}

// predicted are the exchanges whose times the model predicts, and probes those that its parameters come from.
var (
	predicted = map[string]exchange{
		"ping-pong of 32 KiB": pingPong(32 << 10), "ping-pong of 128 KiB": pingPong(128 << 10),
		"Bcast of 8 B": bcast(8), "Bcast of 64 KiB": bcast(64 << 10),
		"Allreduce of 8 B": allreduce(8), "Allreduce of 64 KiB": allreduce(64 << 10),
		"halo exchange of 8 B": halo(8), "halo exchange of 32 KiB": halo(32 << 10),
	}
	probes = map[string]exchange{
		"short there and back": pingPong(8), "long there and back": pingPong(probeBytes),
		"short both ways": both(8), "long both ways": both(probeBytes),
	}
)

// probeBytes is the length of a long probe.
const probeBytes = 64 << 10

const (
	timedRounds = 60 // of an exchange, whose mean time counts as one value
	timedValues = 25 // of which the median is taken
)

// timeExchanges is a rank of a job that takes the times of all exchanges, and prints them.
func timeExchanges() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		values := map[string][]time.Duration{}
		rounds := map[string]func(int) error{}
		for _, all := range []map[string]exchange{probes, predicted} {
			for name, x := range all {
				rounds[name] = x(world)
			}
		}
		for value := range timedValues + 3 { // the first ones do not count
			for _, name := range slices.Sorted(maps.Keys(rounds)) {
				if err := mpi.Barrier(world); err != nil {
					return err
				}
				begun := time.Now()
				for number := range timedRounds {
					if err := rounds[name](number); err != nil {
						return err
					}
				}
				if value >= 3 {
					values[name] = append(values[name], time.Since(begun)/timedRounds)
				}
			}
		}
		for name, list := range values {
			if slices.Sort(list); world.Rank() == 0 {
				fmt.Printf("%s: %v\n", name, list[len(list)/2])
			}
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The simulated times of exchanges are those of two hosts of this machine, when the parameters of the model
// are measured there. Nothing else may run meanwhile, so there are several tries.
func TestHosts_SimulatedTimes(t *testing.T) {
	if os.Getenv("WEFT_TEST_TIMES") == "" {
		t.Skip("WEFT_TEST_TIMES=1 compares times, on an idle machine")
	}
	c := newCluster(t, 2)
	if runtime.NumCPU() < len(c.hosts) {
		t.Skip("each host needs a processor")
	}
	require.NoError(t, os.Symlink(os.Args[0], c.dir+"/timeexchanges"))
	const tries, allowed = 5, 0.15
	for try := 1; ; try++ {
		worst := c.compareTimes()
		if worst <= allowed {
			return
		}
		require.Less(t, try, tries, "the times are %.0f %% off", 100*worst)
	}
}

// compareTimes compares the times of exchanges between two hosts with the simulated ones, and returns by how
// much of the time the worst is off.
func (c *cluster) compareTimes() (worst float64) {
	j := c.start(1, c.dir+"/timeexchanges")
	require.Zero(c.t, j.wait(), j.err.String())
	took := map[string]time.Duration{}
	for line := range strings.Lines(j.out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		d, err := time.ParseDuration(value)
		require.NoError(c.t, err, line)
		took[name] = d
	}
	n := fitted(took)
	c.t.Logf("latency %v, bandwidth %.0f MB/s, overhead %v, copies %.0f MB/s", n.Latency, n.Bandwidth/1e6,
		n.Overhead, n.Copy/1e6)
	for _, name := range slices.Sorted(maps.Keys(predicted)) {
		simulated := simulatedTime(c.t.(*testing.T), predicted[name], n)
		off := float64(simulated)/float64(took[name]) - 1
		c.t.Logf("%-24s %9v measured, %9v simulated: %+.0f %%", name, took[name], simulated, 100*off)
		worst = max(worst, math.Abs(off))
	}
	return worst
}

// fitted is the network of the model in which the probes take as long as they do. When messages go both ways,
// the processors are busy all the time: each with a message that it sends and one that it receives.
func fitted(took map[string]time.Duration) mpitest.Network {
	n := mpitest.Network{Overhead: took["short both ways"] / 2}
	n.Latency = took["short there and back"]/2 - n.Overhead
	seconds := func(probe string) float64 { // for a byte
		return (took["long "+probe] - took["short "+probe]).Seconds() / probeBytes
	}
	copying := seconds("both ways") / 2
	n.Copy = 1 / copying
	const last = float64(16<<10) / probeBytes // of the bytes are copied when all others have been
	n.Bandwidth = 1 / max(seconds("there and back")/2-last*copying, copying)
	return n
}

// simulatedTime is the time of a round of an exchange, after some that do not count.
func simulatedTime(t *testing.T, x exchange, network mpitest.Network) time.Duration {
	const before, counted = 100, 20
	run := func(rounds int) time.Duration {
		return mpitest.Measure(t, 2, func(_ context.Context, world *mpi.Comm) error {
			round := x(world)
			for number := range rounds {
				if err := round(number); err != nil {
					return err
				}
			}
			return nil
		}, mpitest.On(network)).Time
	}
	return (run(before+counted) - run(before)) / counted
}
