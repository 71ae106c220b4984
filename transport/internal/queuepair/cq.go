package queuepair

import (
	"fmt"
	"iter"
	"slices"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// ProviderCQ is the provider's part of a completion queue: the queue pairs that a pass drives, and what ends
// a sleep.
type ProviderCQ interface {
	handlers.Queue

	// Each yields the queue pairs that are attached. They may end meanwhile.
	Each(yield func(*QP) bool)

	// Sleep makes traffic end a wait of the poller. It returns false if a pass already has something to do.
	// Awake ends what Sleep began, whatever it returned.
	Sleep() bool
	Awake()

	// Dispose closes the queue. It includes a call of CQ.Dispose.
	Dispose()
}

// CQ is the common part of a completion queue: completions, events, the hand-off of new queue pairs to its
// driver, and the driver's sleep. It does not drive queue pairs.
type CQ struct {
	Sleepers Sleepers

	inbox       inbox
	completions verbs.CompletionRing
	handling    handlers.Handling
	placed      []*QP // with placed Writes that Placed has not reported
	poller      *sys.Poller
	provider    ProviderCQ
	dev         *Device
	users       atomic.Int32 // QPs that use it
}

// coreOf returns the common part of a completion queue; nil if it has none.
func coreOf(c transport.CQ) *CQ {
	if x, ok := c.(interface{ core() *CQ }); ok {
		return x.core()
	}
	return nil
}

func (c *CQ) core() *CQ { return c }

// Provider returns the provider's part of the queue.
func (c *CQ) Provider() ProviderCQ { return c.provider }

// Take removes completions, oldest first, and returns how many.
func (c *CQ) Take(wc []transport.WC) int { return c.completions.Take(wc) }

// Push adds a completion. If there is no room the queue is overrun: an error of the queue, and of every queue
// pair that uses it.
func (c *CQ) Push(wc transport.WC) {
	if !c.completions.Put(&wc) {
		if err := c.completions.Overrun(); err != nil {
			c.Raise()
			c.failAll(err, transport.StatusFatal)
		}
		return
	}
	if c.handling.Requested() != 0 {
		handlers.Completed(c.provider, wc.Status)
	}
}

// Placed reports queue pairs with newly placed Writes.
func (c *CQ) Placed(qps []transport.QPN) int {
	n := min(len(qps), len(c.placed))
	if n == 0 {
		return 0
	}
	for i, q := range c.placed[:n] {
		q.placed = false
		qps[i] = q.Attr.Num
	}
	c.placed = c.placed[:copy(c.placed, c.placed[n:])]
	return n
}

// HasPlaced reports whether Placed has something to report.
func (c *CQ) HasPlaced() bool { return len(c.placed) > 0 }

// forget drops the completions and reports of a queue pair.
func (c *CQ) forget(q *QP) {
	c.placed = slices.DeleteFunc(c.placed, func(o *QP) bool { return o == q })
	c.completions.Forget(q.Attr.Num)
}

// RequireFree returns an error if a handler has the queue; op names the operation that it excludes.
func (c *CQ) RequireFree(op string) error { return c.handling.RequireFree(op) }

// RequestNotify requests one event.
func (c *CQ) RequestNotify(n transport.Notify) error { return c.handling.Request(n) }

// Match raises an event if one of kind n was requested.
func (c *CQ) Match(n transport.Notify) {
	if c.handling.Requested()&n != 0 {
		handlers.RaiseFor(c.provider, n)
	}
}

// Raise makes an event pending for the handler, and wakes the queue if needed.
func (c *CQ) Raise() {
	if !c.handling.Raise() {
		c.provider.Wake()
	}
}

// Handling returns the queue's handler and event state.
func (c *CQ) Handling() *handlers.Handling { return &c.handling }

// Others yields the other completion queue of each queue pair that has two.
func (c *CQ) Others() iter.Seq[*handlers.Handling] {
	return func(yield func(*handlers.Handling) bool) {
		for q := range c.provider.Each {
			if o := q.other(c); o != c && !yield(&o.handling) {
				return
			}
		}
	}
}

// Poller returns the poller in which the queue's driver sleeps; nil once the queue is closed.
func (c *CQ) Poller() *sys.Poller { return c.poller }

// Descriptor returns the poller's descriptor, which is readable when a Wait would end.
func (c *CQ) Descriptor() int { return c.poller.Descriptor() }

func (c *CQ) closePoller() {
	if c.poller != nil {
		c.poller.Close()
		c.poller = nil
	}
}

// Close releases the queue.
func (c *CQ) Close() error {
	if n := c.users.Load(); n > 0 {
		return fmt.Errorf("%w: %d queue pairs use the completion queue", transport.ErrInvalid, n)
	}
	if err := c.handling.RequireFree("Close"); err != nil {
		return err
	}
	c.provider.Dispose()
	c.dev.remove(c)
	return nil
}

// endAll cuts the queue pairs when the device is closed: posted requests complete, and can be polled.
func (c *CQ) endAll() {
	c.handling.Locked(func() {
		c.provider.Admit()
		c.failAll(transport.ErrDeviceGone, transport.StatusFlushed)
	})
}

func (c *CQ) failAll(cause error, status transport.Status) {
	for q := range c.provider.Each {
		q.Fail(cause, status)
	}
}
