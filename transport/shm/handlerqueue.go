package shm

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// What a handler, and the common part, need of a queue.

var _ queuepair.ProviderCQ = (*cq)(nil)

// Each yields the queue pairs that are attached.
func (c *cq) Each(yield func(*queuepair.QP) bool) { c.qps.Each(yield) }

// Handled has the peers tell of everything if a handler has the queue.
func (c *cq) Handled(by bool) {
	c.handled = by
	c.enableNotify()
}

// RequestNotify asks for one event.
func (c *cq) RequestNotify(n transport.Notify) error {
	if n&transport.NotifyPlaced != 0 {
		c.Arm()
	}
	return c.CQ.RequestNotify(n)
}

// other is the completion queue of the other half of a queue pair, or the same one.
func (q *qp) other(c *cq) *cq {
	if c == q.scq {
		return q.rcq
	}
	return q.scq
}
