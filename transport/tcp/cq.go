package tcp

import (
	"fmt"
	"sync"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// cq is a completion queue; polling it drives the queue pairs attached to it.
type cq struct {
	queuepair.CQ

	qps      queuepair.Members[*qp] // driven by a pass
	interest interest
	*buffers // made with the first queue pair
	makeOnce sync.Once

	byNum []*qp // qps by number; nil for others
	ready []int32

	dev *Device

	clock keepalive.Clock
	ticks int // that were due
}

// buffers are what a completion queue reads into and writes out of.
type buffers struct {
	staging [stagingSize]byte // what was read and is not yet placed; empty between two QPs' turns
	out     frame.Batch
	after   [frame.MaxBatchFrames]cursor // the cursor after each frame of out; only a singleLink uses it
}

func (c *cq) makeBuffers() { c.makeOnce.Do(func() { c.buffers = new(buffers) }) }

// readDirectly is the largest number of queue pairs whose sockets a pass reads without asking the poller
// which of them have data.
const readDirectly = 8

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(depth int, id transport.HandlerID) (transport.CQ, error) {
	if err := d.CheckCQ(depth); err != nil {
		return nil, err
	}
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &cq{dev: d, clock: keepalive.Clock{Period: d.tickPeriod()}, ready: make([]int32, 64)}
	if err := d.AddCQ(&c.CQ, c, poller, depth, id); err != nil {
		return nil, err
	}
	return c, nil
}

// Pass drives the queue pairs once, and reports whether anything was received.
func (c *cq) Pass() (found bool) {
	if c.Due() {
		c.TakeIn()
	}
	if c.Sleepers.Wanted.Load() || len(c.qps) > readDirectly {
		c.Arm()
	}
	if len(c.qps) <= readDirectly {
		for i := 0; i < len(c.qps); {
			q := c.qps[i]
			found = q.drive() || found
			i += c.qps.Step(i, q)
		}
		if found && c.interest.on {
			if c.interest.busy++; c.interest.busy > disarmAfter {
				c.disarm()
			}
		}
	} else {
		for i := 0; i < len(c.qps); {
			q := c.qps[i]
			if !q.blocked && q.sequencer.hasOutput() {
				q.sequencer.transmit()
			}
			i += c.qps.Step(i, q)
		}
		n := c.Poller().Ready(c.ready)
		for _, id := range c.ready[:n] {
			if q := c.byNum[id]; q != nil { // nil: it has ended
				found = q.drive() || found
			}
		}
	}
	return found
}

// handOver queues a connected queue pair for the queue's driver. It may be called from any goroutine.
func (c *cq) handOver(q *qp) {
	c.HandOver(queuepair.Arrival{Enter: func() {
		c.attach(q)
		if q.open {
			q.sequencer.start()
		}
	}})
}

func (c *cq) attach(q *qp) {
	if !c.qps.Add(q) {
		return // it has ended before
	}
	if n := int(q.Num()) + 1 - len(c.byNum); n > 0 {
		c.byNum = append(c.byNum, make([]*qp, n)...)
	}
	c.byNum[q.Num()] = q
	if q.Admit(&c.CQ) && c.interest.on {
		q.sequencer.watch(c)
	}
}

func (c *cq) detach(q *qp) {
	if c.qps.Remove(q) {
		c.byNum[q.Num()] = nil
		if q.open {
			q.sequencer.unwatch(c)
		}
	}
}

// The provider's part of the queue. Sockets wake the poller by themselves.

var _ queuepair.ProviderCQ = (*cq)(nil)

func (c *cq) Handled(bool) {}
func (c *cq) Sleep() bool  { return true }
func (c *cq) Awake()       {}

func (c *cq) Each(yield func(*queuepair.QP) bool) { c.qps.Each(yield) }
