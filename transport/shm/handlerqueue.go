package shm

import (
	"slices"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// What a handler, and the common part, need of a queue.

var _ queuepair.ProviderCQ = (*cq)(nil)

func (c *cq) Pass() bool   { return c.pass() }
func (c *cq) Admit()       { c.admit() }
func (c *cq) Waited() bool { return c.interest.Any() }

// Each goes through the queue pairs that are attached.
func (c *cq) Each(yield func(*queuepair.QP) bool) {
	for _, q := range slices.Clone(c.qps) {
		if !yield(&q.QP) {
			return
		}
	}
}

// Handled has the peers tell of everything if a handler has the queue.
func (c *cq) Handled(by bool) {
	c.handled = by
	c.enableNotify()
}

// Park has the poller tell of the queue, also if its consumer polls it meanwhile.
func (c *cq) Park() bool {
	if !c.interest.Enter() {
		return false
	}
	if !c.sleep() {
		c.Wake()
	}
	return true
}

// Unpark ends that.
func (c *cq) Unpark() { c.leave() }

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
