package tcp

import (
	"fmt"
	"iter"
	"slices"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
)

// SetCompletionHandler registers a completion handler and starts it.
func (d *Device) SetCompletionHandler(c transport.HandlerConfig) (transport.HandlerID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return 0, transport.ErrDeviceGone
	}
	return d.handlers.Register(c)
}

// ModifyCQ gives a completion queue to another handler, or to none.
func (d *Device) ModifyCQ(q transport.CQ, id transport.HandlerID) error {
	c, ok := q.(*cq)
	if !ok || c.dev != d {
		return fmt.Errorf("%w: the completion queue is not of this device", transport.ErrInvalid)
	}
	c.admit() // what comes later is looked at then
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return transport.ErrDeviceGone
	}
	return d.handlers.Give(c, id)
}

// CloseHandler ends a handler that has no queues.
func (d *Device) CloseHandler(id transport.HandlerID) error { return d.handlers.Close(id) }

// What a handler needs of a queue.

var _ handlers.Queue = (*cq)(nil)

func (c *cq) Handling() *handlers.Handling { return &c.handling }
func (c *cq) Poller() *sys.Poller          { return c.poller }
func (c *cq) Pass() bool                   { return c.pass() }
func (c *cq) Waited() bool                 { return c.arming.waits() }
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
func (c *cq) Park() bool { return c.arming.enter() }

// Unpark ends that.
func (c *cq) Unpark() { c.arming.leave() }

// RequestNotify asks for one event.
func (c *cq) RequestNotify(n transport.Notify) error { return c.handling.Request(n) }

// match raises the event if it was asked for.
func (c *cq) match(n transport.Notify) {
	if c.handling.Match(n) {
		c.raise()
	}
}

// raise has the handler deliver an event.
func (c *cq) raise() {
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

// end cuts the queue pairs of a completion queue when its device is closed: what is posted completes, and can be polled.
func (c *cq) end() {
	c.handling.Locked(func() {
		c.admit()
		for _, q := range slices.Clone(c.qps) {
			q.fail(transport.ErrDeviceGone, transport.StatusFlushed)
		}
	})
}
