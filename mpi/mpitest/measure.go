package mpitest

import (
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/transport/sim"
)

// Network is what messages cost in Measure. Computing costs nothing: a body that wants it to calls
// time.Sleep.
type Network struct {
	Latency   time.Duration // from when a rank begins to send a byte until it is at another
	Bandwidth float64       // bytes a second of each rank, in each direction
	Overhead  time.Duration // of a rank's processor for each message that it sends or receives
	Copy      float64       // bytes a second that the processor copies, at either end; 0 if it copies none
}

// Cluster is a network of 100 Gb/s whose cards copy without the processor.
var Cluster = Network{Latency: 1750 * time.Nanosecond, Bandwidth: 12.5e9, Overhead: 250 * time.Nanosecond}

// On chooses the network of Measure; the default is Cluster.
func On(n Network) Option { return func(o *options) { o.network = &n } }

// Result is what a job has cost.
type Result struct {
	Time     time.Duration // from the beginning of the bodies until the last has returned
	Messages []uint64      // that each rank has sent
	Bytes    []uint64      // of these, without headers
	Rounds   []int         // the longest chain of messages to each rank's end, each sent when one had come
}

// Measure runs body as Run does, but not in checking mode, on a network in which messages take time, and
// returns what they have cost. It runs body twice: the second time each message takes the same time, whatever
// its length, and so the rounds are known. Messages include those that a collective consists of. Times are
// simulated, and vary little: with the order in which the Go runtime schedules ranks that may go on.
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

// cost is what a rank's body has cost.
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

// costs are those of the simulated network; nil where messages take no time.
func (n *Network) costs() *sim.Costs {
	if n == nil {
		return nil
	}
	return &sim.Costs{Latency: n.Latency, Bandwidth: n.Bandwidth, Overhead: n.Overhead, Copy: n.Copy}
}
