package shm

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// Methods that a handler, and the common part of a queue, need.

var _ queuepair.ProviderCQ = (*cq)(nil)

// Each yields the queue pairs that are attached.
func (c *cq) Each(yield func(*queuepair.QP) bool) { c.qps.Each(yield) }

// Handled makes peers notify of everything if a handler has the queue.
func (c *cq) Handled(by bool) {
	c.handled = by
	c.enableNotify()
}

// RequestNotify requests one event.
func (c *cq) RequestNotify(n transport.Notify) error {
	if n&transport.NotifyPlaced != 0 {
		c.Arm()
	}
	return c.CQ.RequestNotify(n)
}

// other returns the other completion queue of a queue pair, or c if both are the same.
func (q *qp) other(c *cq) *cq {
	if c == q.scq {
		return q.rcq
	}
	return q.scq
}
