package tcp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/keepalive"
)

// cq is a completion queue; polling it drives the queue pairs attached to it.
type cq struct {
	qps      []*qp       // driven by a pass
	arrivals atomic.Bool // inbox has something
	interest interest
	placed   []*qp  // with Writes placed that nobody has been told of
	staging  []byte // what was read and is not yet placed; empty between two QPs' turns

	completions verbs.CompletionRing
	byNum       []*qp // qps by number, nil between them
	poller      *sys.Poller
	ready       []int32

	dev   *Device
	users atomic.Int32 // QPs that name it

	handling handlers.Handling

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
	if d.closed.Load() {
		return nil, transport.ErrDeviceGone
	}
	if depth < 1 || depth > maxCQDepth {
		return nil, fmt.Errorf("%w: a completion queue of depth %d; 1 to %d are possible",
			transport.ErrInvalid, depth, maxCQDepth)
	}
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &cq{
		dev: d, poller: poller, clock: keepalive.Clock{Period: d.tickPeriod()},
		completions: verbs.NewCompletionRing(depth),
		ready:       make([]int32, 64), staging: make([]byte, stagingSize),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.handlers.Add(c, id); err != nil {
		poller.Close()
		return nil, err
	}
	d.cqs = append(d.cqs, c)
	return c, nil
}

// Poll makes a pass and returns completions.
func (c *cq) Poll(wc []transport.WC) int {
	c.pass()
	return c.completions.Take(wc)
}

// pass drives the queue pairs once, and tells whether anything came.
func (c *cq) pass() (found bool) {
	if c.arrivals.Load() {
		c.admit()
	}
	if c.interest.wanted.Load() || len(c.qps) > readDirectly {
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
		n := c.poller.Ready(c.ready)
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

// Placed reports queue pairs that have had Writes placed.
func (c *cq) Placed(qps []transport.QPN) int {
	n := min(len(qps), len(c.placed))
	for i, q := range c.placed[:n] {
		q.placedReported = false
		qps[i] = q.num
	}
	c.placed = c.placed[:copy(c.placed, c.placed[n:])]
	return n
}

// Wait blocks in the poller.
func (c *cq) Wait(d time.Duration) error {
	if entered, err := c.EnterWait(); !entered {
		return err
	}
	defer c.interest.leave()
	return c.poller.Wait(d)
}

// Descriptor is the poller's own: it is readable while a socket has something, or after a Wake.
func (c *cq) Descriptor() int { return c.poller.Descriptor() }

// EnterWait begins a wait; false if something may have come already, or nothing would end the wait.
func (c *cq) EnterWait() (bool, error) {
	if err := c.handling.Free("Wait"); err != nil {
		return false, err
	}
	if c.poller == nil {
		return false, transport.ErrDeviceGone
	}
	return !c.arrivals.Load() && c.interest.enter(), nil
}

// LeaveWait ends a wait and takes a Wake back that has ended it.
func (c *cq) LeaveWait() {
	c.poller.Drain()
	c.interest.leave()
}

// Wake ends a Wait.
func (c *cq) Wake() { c.poller.Wake() }

// Close releases the queue.
func (c *cq) Close() error {
	if n := c.users.Load(); n > 0 {
		return fmt.Errorf("%w: %d queue pairs use the completion queue", transport.ErrInvalid, n)
	}
	if err := c.handling.Free("Close"); err != nil {
		return err
	}
	c.release()
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	c.dev.cqs = slices.DeleteFunc(c.dev.cqs, func(o *cq) bool { return o == c })
	return nil
}

func (c *cq) release() {
	c.inbox.Lock()
	c.inbox.closed = true
	lanes := c.inbox.lanes
	c.inbox.lanes = nil
	c.inbox.Unlock()
	for i := range lanes {
		lanes[i].drop()
	}
	if c.poller != nil {
		c.poller.Close()
		c.poller = nil
	}
}

// Push adds a completion. When there is no room the queue is overrun: an error of the CQ, and of every QP
// that uses it.
func (c *cq) Push(wc transport.WC) {
	if !c.completions.Put(&wc) {
		if err := c.completions.Overrun(); err != nil {
			c.Raise()
			c.failAll(err, transport.StatusFatal)
		}
		return
	}
	if c.handling.Armed() != 0 {
		handlers.Completed(c, wc.Status)
	}
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
	if n := int(q.num) + 1 - len(c.byNum); n > 0 {
		c.byNum = append(c.byNum, make([]*qp, n)...)
	}
	c.byNum[q.num] = q
	if err := c.completions.Err(); err != nil {
		q.fail(err, transport.StatusFatal)
		return
	}
	if !c.handling.SameLock(&q.other(c).handling) {
		q.fail(handlers.ErrLocks, transport.StatusFatal)
		return
	}
	if c.interest.on {
		q.sequencer.watch(c)
	}
}

func (c *cq) detach(q *qp) {
	if i := slices.Index(c.qps, q); i >= 0 {
		c.qps = slices.Delete(c.qps, i, i+1)
		c.byNum[q.num] = nil
		if q.open {
			q.sequencer.unwatch(c)
		}
	}
}
