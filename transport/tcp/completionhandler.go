package tcp

import (
	"iter"
	"slices"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
)

// What a handler needs of a queue.

var _ handlers.Queue = (*cq)(nil)

func (c *cq) Handling() *handlers.Handling { return &c.handling }
func (c *cq) Poller() *sys.Poller          { return c.poller }
func (c *cq) Pass() bool                   { return c.pass() }
func (c *cq) Admit()                       { c.admit() }
func (c *cq) Waited() bool                 { return c.interest.hasSleepers() }
func (c *cq) Handled(bool)                 {}

// Others are the other queues of the queue pairs.
func (c *cq) Others() iter.Seq[*handlers.Handling] {
	return func(yield func(*handlers.Handling) bool) {
		for _, q := range c.qps {
			if o := q.other(c); o != c && !yield(&o.handling) {
				return
			}
		}
	}
}

// Park has the poller tell of the queue, also if its consumer polls it meanwhile.
func (c *cq) Park() bool { return c.interest.enter() }

// Unpark ends that.
func (c *cq) Unpark() { c.interest.leave() }

// RequestNotify asks for one event.
func (c *cq) RequestNotify(n transport.Notify) error { return c.handling.Request(n) }

// match raises an event if it was asked for.
func (c *cq) match(n transport.Notify) {
	if c.handling.Armed()&n != 0 {
		handlers.RaiseFor(c, n)
	}
}

// Raise has the handler deliver an event.
func (c *cq) Raise() {
	if !c.handling.Raise() {
		c.Wake()
	}
}

// other is the completion queue of the other half of a queue pair, or the same one.
func (q *qp) other(c *cq) *cq {
	if c == q.scq {
		return q.rcq
	}
	return q.scq
}

// end cuts the queue pairs of a completion queue when its device is closed: what is posted completes, and can
// be polled.
func (c *cq) end() {
	c.handling.Locked(func() {
		c.admit()
		c.failAll(transport.ErrDeviceGone, transport.StatusFlushed)
	})
}

// failAll ends all queue pairs of a queue.
func (c *cq) failAll(cause error, status transport.Status) {
	for _, q := range slices.Clone(c.qps) {
		q.fail(cause, status)
	}
}
