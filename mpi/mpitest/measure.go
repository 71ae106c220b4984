package mpitest

import (
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/transport/sim"
)

// Network has the costs of messages in Measure. Computing costs nothing: a body may call time.Sleep for it.
type Network struct {
	Latency   time.Duration // from the start of a byte's transmission to its arrival
	Bandwidth float64       // bytes a second of each rank, in each direction
	Overhead  time.Duration // of a rank's processor for each message that it sends or receives
	Copy      float64       // bytes a second that the processor copies, at either end; 0 if it does not copy
}

// Cluster is a network of 100 Gb/s whose cards copy without the processor.
var Cluster = Network{Latency: 1750 * time.Nanosecond, Bandwidth: 12.5e9, Overhead: 250 * time.Nanosecond}

// On chooses the network of Measure; the default is Cluster.
func On(n Network) Option { return func(o *options) { o.network = &n } }

// Result is the cost of a job.
type Result struct {
	Time     time.Duration // from the beginning of the bodies until the last has returned
	Messages []uint64      // sent by each rank
	Bytes    []uint64      // of these messages, without headers
	Rounds   []int         // the longest chain of dependent messages to each rank's end
}

// Measure runs body as Run does, but not in checking mode, on a network in which messages take time, and
// returns the cost. It runs body twice: the second time each message takes the same time, for any length, to
// count the rounds. Messages include those of collectives. Times are simulated, and vary little, with the
// order in which the Go runtime schedules ranks that can go on.
func Measure(t *testing.T, n int, body Body, opts ...Option) Result {
	t.Helper()
	var result Result
	chosen, err := chosen(t, "Measure", n, body, append([]Option{On(Cluster)}, opts...))
	if err != nil {
		t.Fatal(err)
	}
	first := *chosen
	if first.fabric != "" {
		t.Fatal("mpitest: Measure is for the simulated network; Fabric has no place in it")
	}
	first.config = append([]mpi.Config{{Settings: map[string]string{"WEFT_CHECK": "off"}}}, first.config...)
	second := first
	second.network = &Network{Latency: round}
	for _, o := range []*options{&first, &second} {
		j := newJob(t, n, body, o.seed, o)
		if err := runOnce(j); err != nil {
			t.Fatal(err)
		}
		if t.Failed() || t.Skipped() {
			t.FailNow()
		}
		for _, r := range j.ranks {
			if o == &second {
				result.Rounds = append(result.Rounds, int(r.cost.took/round))
				continue
			}
			result.Time = max(result.Time, r.cost.took)
			result.Messages = append(result.Messages, r.cost.messages)
			result.Bytes = append(result.Bytes, r.cost.bytes)
		}
	}
	return result
}

// round is the time that each message takes when rounds are counted: far less than any timeout.
const round = 10 * time.Microsecond

// cost is the cost of a rank's body.
type cost struct {
	took            time.Duration
	messages, bytes uint64
}

func (c *cost) take(world *mpi.Comm, began time.Time) {
	c.took = time.Since(began)
	for _, channel := range world.Stats().Channels {
		c.messages += channel.Eager + channel.Rendezvous
		c.bytes += channel.EagerBytes + channel.RendezvousBytes
	}
}

// costs returns the costs of the simulated network; nil if messages take no time.
func (n *Network) costs() *sim.Costs {
	if n == nil {
		return nil
	}
	return &sim.Costs{Latency: n.Latency, Bandwidth: n.Bandwidth, Overhead: n.Overhead, Copy: n.Copy}
}
