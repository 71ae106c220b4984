package verbstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// ticks gives nodes their own clock, in which they tick.
type ticks struct {
	t      *trial
	now    time.Time
	period time.Duration
}

func (t *trial) ticks(n *node) *ticks {
	period := n.dev.Query().TickPeriod
	if period == 0 {
		panic(failure{fmt.Errorf("the provider does not tick: %w", errors.ErrUnsupported)})
	}
	return &ticks{t, time.Unix(1000, 0), period}
}

// pass advances the clock by d, ticks some nodes, and then drives all of them, so that each message is
// received before the next tick.
func (k *ticks) pass(d time.Duration, ticking []*node, all ...*node) {
	k.now = k.now.Add(d)
	for _, n := range ticking {
		for _, cq := range n.cqs() {
			cq.Tick(k.now)
		}
	}
	k.t.settle(all...)
}

// manyPeriods is more than the number of periods that any silence may last.
const manyPeriods = 50

var tickChecks = []Check{
	{"Tick/IdleQueuePairsLive", func(t *trial) {
		for _, s := range []shape{{}, {separate: true}} {
			a, b := t.pair(s)
			k := t.ticks(a)
			for _, n := range []*node{a, b} {
				t.must(n.qp.PostRecv(&transport.RecvWR{ID: 1}))
			}
			for range manyPeriods {
				k.pass(k.period, []*node{a, b}, a, b)
			}
			t.none(a, b)
			for _, n := range []*node{a, b} {
				t.must(n.qp.PostSend(&transport.SendWR{ID: 2, Op: transport.OpSend,
					Flags: transport.FlagSignaled}))
			}
			t.take(a, 2, a, b)
			t.take(b, 2, a, b)
			t.well(a, b)
			t.closeAll()
		}
	}},
	{"Tick/C5_SilentPeerIsLost", func(t *trial) {
		for _, s := range []shape{{}, {separate: true}} {
			a, b := t.pair(s)
			k := t.ticks(a)
			posted := t.traffic(a, b)
			for range manyPeriods {
				k.pass(k.period, []*node{a}, a) // the other end is stopped
			}
			if s := a.qp.State(); s != transport.StateError {
				t.failf("after %d periods of silence the queue pair is %v", manyPeriods, s)
			}
			t.is(a.qp.Err(), "error after a silence", transport.ErrPeerLost)
			t.until("the end at the side that goes on",
				func() bool { return b.qp.State() == transport.StateError }, a, b)
			t.allOnce(posted, a, b)
			t.closeAll()
		}
	}},
	{"Tick/LateTicksLoseNobody", func(t *trial) {
		a, b := t.pair(shape{})
		k := t.ticks(a)
		for range manyPeriods {
			k.pass(time.Hour, []*node{a}, a)
		}
		t.well(a, b)
	}},
	{"Tick/ManyTicksInAPeriodAreOne", func(t *trial) {
		a, b := t.pair(shape{})
		k := t.ticks(a)
		for range manyPeriods {
			k.pass(k.period/manyPeriods, []*node{a}, a)
		}
		t.well(a, b)
	}},
}
