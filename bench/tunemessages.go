package bench

import (
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/internal/tuning"
	"github.com/weft-mpi/weft/mpi"
)

// messageName is the name of messages between two ranks among what Tune compares.
const messageName = "Send"

// messageRanks is the number of ranks that exchange messages, the first ones of the job.
const messageRanks = 2

// messageWay is a way in which a message can move.
type messageWay struct {
	way       tuning.Way
	announced float64 // per cent of the bytes that do not go through the ring
	// the setting that forces it for a whole job, and its value, over shared memory and over TCP
	shared, tcp string
}

var messageWays = []messageWay{
	{tuning.Ring, 0, setting.CopyCosts.Name + "=1s,1ns,1ns", setting.EagerMax.Name + "=1G"},
	{tuning.Announced, 100, setting.CopyCosts.Name + "=1ns,1ns,1s", setting.EagerMax.Name + "=1"},
}

// wayName names the way of messages of n bytes of which a part, in per cent, was announced.
func wayName(fabric string, announced float64, n int) string {
	const exceptions = 10 // from time to time, a message goes the other way so that it is measured
	switch {
	case announced < exceptions:
		return "ring"
	case announced < 100-exceptions:
		return "mixed"
	case fabric == "tcp":
		return "announced"
	case n < sharedcopy.Min:
		return "one copy"
	}
	return "both ends"
}

func (o *TuneOptions) comparesMessages() bool {
	return o.Collectives == nil || slices.Contains(o.Collectives, messageName)
}

func (o *TuneOptions) messageSizes() (list []int) {
	for n := o.Min; n <= o.MaxMessage; n *= 2 {
		list = append(list, n)
	}
	return list
}

// messages compares the ways of messages between the first ranks.
func (t *tuner) messages() error {
	some, err := t.first(messageRanks)
	if err != nil {
		return err
	}
	if some != nil {
		defer tuning.ForceWay(some, tuning.Chosen)
		var better [tuning.Announced + 1]string // sizes at which each way is
		for _, n := range t.messageSizes() {
			p, best, err := t.messagePoint(some, n)
			if err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
			if p.standing == slower {
				better[best] += fmt.Sprintf(", %d", n)
			}
			t.points = append(t.points, p)
			t.print(&p)
		}
		for _, w := range messageWays {
			if better[w.way] == "" {
				continue
			}
			force := w.shared
			if fabricTo(some) == "tcp" {
				force = w.tcp
			}
			t.out.printf("# %s forces the better way of messages of%s bytes\n", force, better[w.way][1:])
		}
		if err := some.Free(); err != nil {
			return err
		}
	}
	return mpi.Barrier(t.world)
}

// messagePoint compares the ways of messages of n bytes, and returns the best one.
func (t *tuner) messagePoint(some *mpi.Comm, n int) (p tunePoint, best tuning.Way, err error) {
	p = tunePoint{tuned: tuned{name: messageName}, ranks: messageRanks, bytes: n}
	fabric, chosen := fabricTo(some), messageWay{way: tuning.Chosen}
	all, byName := []*contender(nil), make(map[string]tuning.Way)
	for _, w := range append([]messageWay{chosen}, messageWays...) {
		var announced float64
		x := &contender{used: func() string { return wayName(fabric, announced, n) }}
		x.measure = func(seconds float64) (took float64, err error) {
			took, announced, err = t.messageTime(some, w.way, n, seconds)
			return took, err
		}
		if _, err := x.measure(t.slice / tuneRounds); err != nil {
			return p, best, err
		}
		if w.way != tuning.Chosen {
			x.name = wayName(fabric, w.announced, n)
			x.out = x.used() != x.name // there is no such way at this size
			byName[x.name] = w.way
		}
		all = append(all, x)
	}
	err = t.compare(&p, all)
	return p, byName[p.best], err
}

// messageTime returns the time of a message one way, in µs, and how many per cent of the bytes were
// announced, from messages that take about the given seconds. Both are means of the ranks.
func (t *tuner) messageTime(some *mpi.Comm, w tuning.Way, n int, seconds float64) (took, announced float64,
	err error) {
	timed := *t.session
	timed.world, timed.Iterations, timed.Warmup = some, 2, warmUpCalls
	tuning.ForceWay(some, w)
	m, err := latency(&timed, n)
	if err != nil {
		return 0, 0, err
	}
	if timed.Iterations, err = callsWithin(some, seconds, 2*m.value/1e6, 1e5); err != nil {
		return 0, 0, err
	}
	ringBefore, otherBefore := sentBytes(some)
	if m, err = latency(&timed, n); err != nil {
		return 0, 0, err
	}
	ring, other := sentBytes(some)
	ring, other = ring-ringBefore, other-otherBefore
	both := []float64{m.value / messageRanks, 100 * float64(other) / float64(ring+other) / messageRanks}
	err = mpi.Allreduce(some, mpi.InPlace[float64](), both, mpi.Sum[float64]())
	return both[0], both[1], err
}

// sentBytes returns the bytes that this rank has sent through its rings, and the others.
func sentBytes(c *mpi.Comm) (ring, other uint64) {
	for _, ch := range c.Stats().Channels {
		ring, other = ring+ch.EagerBytes, other+ch.RendezvousBytes
	}
	return ring, other
}

// fabricTo returns the fabric that connects the ranks of a communicator of two.
func fabricTo(some *mpi.Comm) (fabric string) {
	for _, ch := range some.Stats().Channels {
		if ch.Peer == 1-some.Rank() {
			fabric = ch.Fabric
		}
	}
	return fabric
}
