package bench

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/sys"
)

// enlarge measures the cost of a change of phase at rank 0. A round is a message that just fits the slots of
// a phase, and one byte back. The change is how much longer the rounds of a channel that was in a smaller
// phase take, until each slot of the new ring has been used, than the following ones. The kernel's part, for
// the memory of the new rings, is measured separately, by writing the same amount of fresh memory.
func enlarge(s *session) error {
	c, err := newCensus(s)
	if err != nil {
		return err
	}
	if err := c.shrinks(); err != nil {
		return err
	}
	if c.brief = true; s.world.Rank() != 0 {
		return c.echo()
	}
	s.heading()
	announced, err := c.announcing()
	if err != nil {
		return err
	}
	for to := 1; to < len(c.slots); to++ {
		for from := range to {
			if err := c.change(from, to, announced); err != nil {
				return err
			}
		}
	}
	if s.out.err != nil {
		return s.out.err
	}
	return c.end(1)
}

// announcing reports whether the settings announce all messages but small ones.
func (c *census) announcing() (bool, error) {
	before := c.announced(1, 1)
	err := c.exchange(1, c.messageSize(0))
	return c.announced(1, 1) > before, err
}

// changeRounds is the number of rounds that are measured after a change.
const changeRounds = 4 * channel.RingSlots

// change measures a change from one phase to another, or only messages of that size if all are announced.
func (c *census) change(from, to int, announced bool) error {
	times := make([][]float64, changeRounds)
	repeats, _ := c.iterations(c.messageSize(to))
	for range repeats {
		rounds, err := c.changeOnce(from, to, announced)
		if err != nil {
			return err
		}
		for i, took := range rounds {
			times[i] = append(times[i], took)
		}
	}
	change, message := changeOf(times)
	touch, err := c.firstTouch(2*channel.RingSlots*c.slots[to], repeats)
	if err != nil {
		return err
	}
	if announced {
		change, touch = math.NaN(), math.NaN()
	}
	c.row([]float64{float64(c.slots[from]), float64(c.slots[to]), change, touch, message})
	return c.out.err
}

// changeOnce measures the rounds of one change. If the channel has shrunk meanwhile, it starts over.
func (c *census) changeOnce(from, to int, announced bool) ([]float64, error) {
	n, rounds, deadline := c.messageSize(to), make([]float64, changeRounds), time.Now().Add(c.resizeTimeout)
	for {
		if !announced {
			for _, phase := range slices.Compact([]int{0, from}) {
				if err := c.fill(1, phase, deadline); err != nil {
					return nil, err
				}
			}
		}
		for i := range rounds {
			began := c.now()
			if err := c.exchange(1, n); err != nil {
				return nil, err
			}
			rounds[i] = (c.now() - began) * 1e6
		}
		shrunk := false
		for ch := range c.channels(1, 1) {
			shrunk = shrunk || !announced && ch.Phase != to
		}
		if !shrunk {
			return rounds, nil
		}
		if time.Now().After(deadline) {
			return nil, c.doesNotStay(1, 1, to)
		}
	}
}

// firstTouch returns the time to write n bytes of fresh memory, as for a ring at both ends.
func (c *census) firstTouch(n, repeats int) (float64, error) {
	var times []float64
	for range repeats {
		b, err := sys.Map(n)
		if err != nil {
			return 0, fmt.Errorf("memory of %d bytes, to compare with: %w", n, err)
		}
		began := c.now()
		for i := 0; i < n; i += os.Getpagesize() {
			b[i] = 1
		}
		times = append(times, (c.now()-began)*1e6)
		sys.Unmap(b)
	}
	return median(times), nil
}

// announcedFrom is the largest message that is not announced in jobs that announce the messages of enlarge.
const announcedFrom = "256"

// changeOf takes the median of the repeats of each round. After two rings, rounds use no fresh memory.
func changeOf(times [][]float64) (change, message float64) {
	var settled []float64
	for _, round := range times[2*channel.RingSlots:] {
		settled = append(settled, median(round))
	}
	message = median(settled)
	for _, round := range times[:channel.RingSlots] {
		change += median(round) - message
	}
	return max(0, change), message
}

// enlargeColumns returns columns for the job's own settings, for a job in which messages are announced, and
// for both over TCP.
func enlargeColumns() []column {
	own := []column{
		{name: "change", heading: "Change(us)", unit: "us", width: 16},
		{name: "touch", heading: "First touch(us)", unit: "us", width: 18},
		{name: "message", heading: "Message(us)", unit: "us", width: 16},
	}
	announced := own[2]
	announced.heading = "Rendezvous(us)"
	rendezvous := func(job int, name, heading string) column {
		c := besideColumns(job, name, heading, announced)[0]
		c.name = name
		return c
	}
	return slices.Concat([]column{
		{name: "from", heading: "# From", unit: "bytes", width: -10, form: whole},
		{name: "to", heading: "To", unit: "bytes", width: 8, form: whole},
	}, own, []column{rendezvous(1, "rendezvous", "")}, besideColumns(2, "tcp", "TCP:", own...),
		[]column{rendezvous(3, "tcp_rendezvous", "TCP:")})
}
