package sim

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider gives each group of devices a network of its own, each with another seed.
type provider struct {
	seed    uint64
	options []Option
	nets    []*Network
}

func (p *provider) Devices(n int) ([]transport.Device, error) {
	p.seed++
	net := NewNetwork(p.seed, p.options...)
	p.nets = append(p.nets, net)
	var list []transport.Device
	for range n {
		list = append(list, net.Device())
	}
	return list, nil
}

func (p *provider) Cut(a, b transport.Device) error {
	x, y := a.(*device), b.(*device)
	if x.net.Cut(x.rank(), y.rank()) == 0 {
		return errors.New("there was nothing to cut")
	}
	return nil
}

func (p *provider) Vanish(d transport.Device) error {
	x := d.(*device)
	before := x.net.Counters().Vanished
	x.net.Vanish(x.rank())
	if x.net.Counters().Vanished == before {
		return errors.New("nobody vanished")
	}
	return nil
}

func (p *provider) Collide(a, b transport.Device) {
	x, y := a.(*device), b.(*device)
	x.net.Collide(x.rank(), y.rank())
}

// counters sums up what has happened on all networks.
func (p *provider) counters() Counters {
	var sum Counters
	for _, n := range p.nets {
		c := n.Counters()
		sum.Split += c.Split
		sum.Reordered += c.Reordered
		sum.EarlyTails += c.EarlyTails
		sum.EarlyDone += c.EarlyDone
		sum.Overtaken += c.Overtaken
		sum.IdlePolls += c.IdlePolls
		sum.Cuts += c.Cuts
		sum.CutsMidway += c.CutsMidway
		sum.Lost += c.Lost
		sum.Vanished += c.Vanished
		sum.Refused += c.Refused
		sum.Crossed += c.Crossed
		sum.RNR += c.RNR
		sum.Overruns += c.Overruns
		sum.Terminations += c.Terminations
	}
	return sum
}

func TestConformance(t *testing.T) {
	p := &provider{seed: 1000}
	verbstest.Run(t, p)
	c := p.counters()
	for what, n := range map[string]int{"split": c.Split, "reordered": c.Reordered,
		"early tails":       c.EarlyTails,
		"early completions": c.EarlyDone, "overtaken": c.Overtaken, "idle polls": c.IdlePolls, "cuts": c.Cuts,
		"cuts midway": c.CutsMidway, "lost": c.Lost, "vanished": c.Vanished, "refused": c.Refused,
		"crossed": c.Crossed, "RNR": c.RNR,
		"overruns": c.Overruns, "terminations": c.Terminations} {
		if n == 0 {
			t.Errorf("the suite saw nothing of: %s", what)
		}
	}
}
