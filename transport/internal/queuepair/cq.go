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

// ProviderCQ is the provider's part of a completion queue: which queue pairs a pass drives, and what ends a
// sleep.
type ProviderCQ interface {
	handlers.Queue

	// Each yields the queue pairs that are attached. They may end meanwhile.
	Each(yield func(*QP) bool)

	// Sleep has what comes from now on end a wait of the poller. It returns false if a pass has something to
	// do already. Awake ends what Sleep began, whatever it returned.
	Sleep() bool
	Awake()

	// Dispose closes the queue. CQ.Dispose is a part of it.
	Dispose()
}

// CQ is a completion queue's completions and events, what is handed over to its driver, and how that sleeps. It
// does not drive queue pairs.
type CQ struct {
	Sleepers Sleepers

	inbox       inbox
	completions verbs.CompletionRing
	handling    handlers.Handling
	placed      []*QP // with Writes placed that nobody has been told of
	poller      *sys.Poller
	provider    ProviderCQ
	dev         *Device
	users       atomic.Int32 // QPs that name it
}

// coreOf is the common part of a completion queue; nil if it has none.
func coreOf(c transport.CQ) *CQ {
	if x, ok := c.(interface{ core() *CQ }); ok {
		return x.core()
	}
	return nil
}

func (c *CQ) core() *CQ { return c }

// Provider is the queue as its provider knows it.
func (c *CQ) Provider() ProviderCQ { return c.provider }

// Take gives completions, oldest first, and returns how many.
func (c *CQ) Take(wc []transport.WC) int { return c.completions.Take(wc) }

// Push adds a completion. When there is no room the queue is overrun: an error of the queue, and of every
// queue pair that uses it.
func (c *CQ) Push(wc transport.WC) {
	if !c.completions.Put(&wc) {
		if err := c.completions.Overrun(); err != nil {
			c.Raise()
			c.failAll(err, transport.StatusFatal)
		}
		return
	}
	if c.handling.Armed() != 0 {
		handlers.Completed(c.provider, wc.Status)
	}
}

// Placed reports queue pairs that have had Writes placed.
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

// HasPlaced tells whether Placed has something to report.
func (c *CQ) HasPlaced() bool { return len(c.placed) > 0 }

// forget drops what the queue still holds of a queue pair.
func (c *CQ) forget(q *QP) {
	c.placed = slices.DeleteFunc(c.placed, func(o *QP) bool { return o == q })
	c.completions.Forget(q.Attr.Num)
}

// Free refuses what cannot be done to a queue that a handler has.
func (c *CQ) Free(what string) error { return c.handling.Free(what) }

// RequestNotify asks for one event.
func (c *CQ) RequestNotify(n transport.Notify) error { return c.handling.Request(n) }

// Match raises an event if it was asked for.
func (c *CQ) Match(n transport.Notify) {
	if c.handling.Armed()&n != 0 {
		handlers.RaiseFor(c.provider, n)
	}
}

// Raise has the handler deliver an event.
func (c *CQ) Raise() {
	if !c.handling.Raise() {
		c.provider.Wake()
	}
}

// Handling is what the queue knows of its handler and its events.
func (c *CQ) Handling() *handlers.Handling { return &c.handling }

// Others are the other queues of the queue pairs.
func (c *CQ) Others() iter.Seq[*handlers.Handling] {
	return func(yield func(*handlers.Handling) bool) {
		for q := range c.provider.Each {
			if o := q.other(c); o != c && !yield(&o.handling) {
				return
			}
		}
	}
}

// Poller is where the queue's driver sleeps; nil once the queue is closed.
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
	if err := c.handling.Free("Close"); err != nil {
		return err
	}
	c.provider.Dispose()
	c.dev.remove(c)
	return nil
}

// endAll cuts the queue pairs when the device is closed: what is posted completes, and can be polled.
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
