package plain

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

const maxCQDepth = 1 << 20

// CQ is a completion queue. Its driver sleeps in a poller, out of which Notify wakes it.
type CQ struct {
	set         *handlers.Set
	users       atomic.Int32 // QPs that name it
	completions verbs.CompletionRing
	placed      []*QP // with Writes placed that nobody has been told of
	qps         []*QP // driven by a pass
	handling    handlers.Handling
	sleepers    atomic.Int32 // in Wait, and a handler that waits for traffic
	due         atomic.Bool  // a pass has something to do

	mu     sync.Mutex // guards what follows
	poller *sys.Poller
	inbox  []*QP // handed over by connection management
}

// NewCQ makes a completion queue of a device with these handlers, and gives it to one of them, or to none.
func NewCQ(set *handlers.Set, depth int, id transport.HandlerID) (*CQ, error) {
	if depth < 1 || depth > maxCQDepth {
		return nil, fmt.Errorf("%w: a completion queue of depth %d; 1 to %d are possible",
			transport.ErrInvalid, depth, maxCQDepth)
	}
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, err
	}
	c := &CQ{set: set, completions: verbs.NewCompletionRing(depth), poller: poller}
	if err := set.Add(c, id); err != nil {
		poller.Close()
		return nil, err
	}
	return c, nil
}

// Poll makes a pass and returns completions.
func (c *CQ) Poll(wc []transport.WC) int {
	c.Pass()
	return c.completions.Take(wc)
}

// Pass drives the queue pairs once.
func (c *CQ) Pass() (found bool) {
	c.due.Store(false)
	c.Admit()
	for _, q := range slices.Clone(c.qps) {
		found = q.carrier.Drive() || found
	}
	return found
}

// Push adds a completion. When there is no room the queue is overrun, and every QP that uses it ends.
func (c *CQ) Push(wc transport.WC) {
	if !c.completions.Put(&wc) {
		if err := c.completions.Overrun(); err != nil {
			c.Raise()
			c.failAll(err, transport.StatusFatal)
		}
		return
	}
	handlers.Completed(c, wc.Status)
}

// Placed reports queue pairs that have had Writes placed.
func (c *CQ) Placed(qps []transport.QPN) int {
	n := min(len(qps), len(c.placed))
	for i, q := range c.placed[:n] {
		q.marked, qps[i] = false, q.number
	}
	c.placed = slices.Delete(c.placed, 0, n)
	return n
}

// Notify has the queue's driver make a pass. It may be called from any goroutine.
func (c *CQ) Notify() {
	c.due.Store(true)
	if c.sleepers.Load() > 0 {
		c.Wake()
	}
}

// Wake ends a Wait.
func (c *CQ) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.poller != nil {
		c.poller.Wake()
	}
}

// Wait blocks in the poller.
func (c *CQ) Wait(d time.Duration) error {
	if entered, err := c.EnterWait(); !entered {
		return err
	}
	defer c.sleepers.Dec()
	return c.poller.Wait(d)
}

// Descriptor is the poller's own.
func (c *CQ) Descriptor() int { return c.poller.Descriptor() }

// EnterWait begins a wait; false if a pass has something to do.
func (c *CQ) EnterWait() (bool, error) {
	if err := c.handling.Free("Wait"); err != nil {
		return false, err
	}
	c.sleepers.Inc()
	if c.due.Load() {
		c.sleepers.Dec()
		return false, nil
	}
	return true, nil
}

// LeaveWait ends a wait and consumes the Wake that may have ended it.
func (c *CQ) LeaveWait() {
	c.poller.Drain()
	c.sleepers.Dec()
}

// Arm has nothing to do: what comes notifies.
func (c *CQ) Arm() {}

// Tick has nothing to do: DeviceAttr.TickPeriod is 0.
func (c *CQ) Tick(time.Time) {}

// RequestNotify asks for one event.
func (c *CQ) RequestNotify(n transport.Notify) error { return c.handling.Request(n) }

// Close releases the queue.
func (c *CQ) Close() error {
	if n := c.users.Load(); n > 0 {
		return fmt.Errorf("%w: %d queue pairs use the completion queue", transport.ErrInvalid, n)
	}
	if err := c.handling.Free("Close"); err != nil {
		return err
	}
	c.Dispose()
	return nil
}

// Dispose closes the queue with its device, after FailAll.
func (c *CQ) Dispose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.poller != nil {
		c.poller.Close()
		c.poller = nil
	}
}

// handOver gives a connected QP to the queue's driver. It may be called from any goroutine.
func (c *CQ) handOver(q *QP) {
	c.mu.Lock()
	c.inbox = append(c.inbox, q)
	c.mu.Unlock()
	c.Notify()
}

// Admit attaches what was handed over.
func (c *CQ) Admit() {
	c.mu.Lock()
	qps := c.inbox
	c.inbox = nil
	c.mu.Unlock()
	for _, q := range qps {
		if !q.Connected() || slices.Contains(c.qps, q) {
			continue
		}
		c.qps = append(c.qps, q)
		if err := c.completions.Err(); err != nil {
			q.Fail(err, transport.StatusFatal)
		} else if !c.handling.SameLock(&q.other(c).handling) {
			q.Fail(handlers.ErrLocks, transport.StatusFatal)
		}
	}
}

func (c *CQ) detach(q *QP) { c.qps = slices.DeleteFunc(c.qps, func(o *QP) bool { return o == q }) }

func (c *CQ) forget(q *QP) {
	c.detach(q)
	c.placed = slices.DeleteFunc(c.placed, func(o *QP) bool { return o == q })
	c.completions.Forget(q.number)
}

func (c *CQ) failAll(cause error, status transport.Status) {
	for _, q := range slices.Clone(c.qps) {
		q.Fail(cause, status)
	}
}

// EndAll ends the queue pairs when the device is closed.
func (c *CQ) EndAll() {
	c.handling.Locked(func() {
		c.Admit()
		c.failAll(transport.ErrDeviceGone, transport.StatusFlushed)
	})
}

// What a handler needs of a queue.

func (c *CQ) Handling() *handlers.Handling { return &c.handling }
func (c *CQ) Poller() *sys.Poller          { return c.poller }
func (c *CQ) Waited() bool                 { return c.sleepers.Load() > 0 }
func (c *CQ) Handled(bool)                 {}
func (c *CQ) Unpark()                      { c.sleepers.Dec() }

func (c *CQ) Park() bool {
	c.sleepers.Inc()
	if c.due.Load() {
		c.Wake()
	}
	return true
}

func (c *CQ) Raise() {
	if !c.handling.Raise() {
		c.Wake()
	}
}

func (c *CQ) Others() iter.Seq[*handlers.Handling] {
	return func(yield func(*handlers.Handling) bool) {
		for _, q := range c.qps {
			if o := q.other(c); o != c && !yield(&o.handling) {
				return
			}
		}
	}
}
