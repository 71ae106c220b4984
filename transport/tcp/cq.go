package tcp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// cq is a completion queue; polling it drives the queue pairs attached to it.
type cq struct {
	queuepair.CQ

	qps      []*qp       // driven by a pass
	arrivals atomic.Bool // inbox has something
	interest interest
	staging  []byte // what was read and is not yet placed; empty between two QPs' turns

	byNum []*qp // qps by number, nil between them
	ready []int32

	dev *Device

	inbox struct {
		sync.Mutex
		qps    []*qp // handed over by endpoint goroutines
		lanes  []arrival
		closed bool // nobody looks any more
	}
	clock keepalive.Clock

	out   frame.Batch
	after [frame.MaxBatchFrames]cursor // each frame of out, where one link carries it
}

// readDirectly is how many sockets a pass reads without asking first which of them have anything.
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
	c := &cq{
		dev: d, clock: keepalive.Clock{Period: d.tickPeriod()},
		ready: make([]int32, 64), staging: make([]byte, stagingSize),
	}
	if err := d.AddCQ(&c.CQ, c, poller, depth, id); err != nil {
		return nil, err
	}
	return c, nil
}

// Poll makes a pass and returns completions.
func (c *cq) Poll(wc []transport.WC) int {
	c.pass()
	return c.Take(wc)
}

// pass drives the queue pairs once, and tells whether anything came.
func (c *cq) pass() (found bool) {
	if c.arrivals.Load() {
		c.admit()
	}
	if c.interest.Wanted.Load() || len(c.qps) > readDirectly {
		c.Arm()
	}
	if len(c.qps) <= readDirectly {
		for i := 0; i < len(c.qps); {
			q := c.qps[i]
			found = q.drive() || found
			i += c.stepIfPresent(i, q)
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
			i += c.stepIfPresent(i, q)
		}
		n := c.Poller().Ready(c.ready)
		for _, id := range c.ready[:n] {
			if q := c.byNum[id]; q != nil { // the poller knows no others
				found = q.drive() || found
			}
		}
	}
	return found
}

// stepIfPresent is the step to the next queue pair of a pass: none if the i-th has ended and the next has
// taken its place.
func (c *cq) stepIfPresent(i int, q *qp) int {
	if i < len(c.qps) && c.qps[i] == q {
		return 1
	}
	return 0
}

// Wait blocks in the poller.
func (c *cq) Wait(d time.Duration) error {
	if entered, err := c.EnterWait(); !entered {
		return err
	}
	defer c.interest.Leave()
	return c.Poller().Wait(d)
}

// EnterWait begins a wait; false if something may have come already, or nothing would end the wait.
func (c *cq) EnterWait() (bool, error) {
	if err := c.Free("Wait"); err != nil {
		return false, err
	}
	if c.interest.Closed() {
		return false, transport.ErrDeviceGone
	}
	return !c.arrivals.Load() && c.interest.Enter(), nil
}

// LeaveWait ends a wait and takes a Wake back that has ended it.
func (c *cq) LeaveWait() {
	c.Poller().Drain()
	c.interest.Leave()
}

// Wake ends a Wait.
func (c *cq) Wake() { c.Poller().Wake() }

// Dispose ends whoever waits, and closes the poller, and the lanes that nobody has taken.
func (c *cq) Dispose() {
	c.inbox.Lock()
	c.inbox.closed = true
	lanes := c.inbox.lanes
	c.inbox.lanes = nil
	c.inbox.Unlock()
	for i := range lanes {
		lanes[i].drop()
	}
	c.interest.Close(c.Handling().Parked(), c.Wake)
	c.ClosePoller()
}

// handOver gives a connected QP to the queue's driver. It may be called from any goroutine.
func (c *cq) handOver(q *qp) {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	if c.inbox.closed {
		return // the queue pair has been released since it was connected
	}
	c.inbox.qps = append(c.inbox.qps, q)
	c.arrivals.Store(true)
	c.Wake() // with the lock held: the queue is not closed meanwhile
}

// admit attaches what was handed over.
func (c *cq) admit() {
	c.inbox.Lock()
	qps, lanes := c.inbox.qps, c.inbox.lanes
	c.inbox.qps, c.inbox.lanes = nil, nil
	c.arrivals.Store(false)
	c.inbox.Unlock()
	for _, q := range qps {
		c.dev.know(q)
		c.attach(q)
		if q.open {
			q.sequencer.start()
		}
	}
	for i := range lanes {
		lanes[i].take()
	}
}

func (c *cq) attach(q *qp) {
	if !q.open || slices.Contains(c.qps, q) {
		return // it has ended before
	}
	c.qps = append(c.qps, q)
	if n := int(q.Num()) + 1 - len(c.byNum); n > 0 {
		c.byNum = append(c.byNum, make([]*qp, n)...)
	}
	c.byNum[q.Num()] = q
	if q.Admit(&c.CQ) && c.interest.on {
		q.sequencer.watch(c)
	}
}

func (c *cq) detach(q *qp) {
	if i := slices.Index(c.qps, q); i >= 0 {
		c.qps = slices.Delete(c.qps, i, i+1)
		c.byNum[q.Num()] = nil
		if q.open {
			q.sequencer.unwatch(c)
		}
	}
}
