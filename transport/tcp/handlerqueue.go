package tcp

import (
	"slices"

	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// What a handler, and the common part, need of a queue.

var _ queuepair.ProviderCQ = (*cq)(nil)

func (c *cq) Pass() bool   { return c.pass() }
func (c *cq) Admit()       { c.admit() }
func (c *cq) Waited() bool { return c.interest.Any() }
func (c *cq) Handled(bool) {}

// Each goes through the queue pairs that are attached.
func (c *cq) Each(yield func(*queuepair.QP) bool) {
	for _, q := range slices.Clone(c.qps) {
		if !yield(&q.QP) {
			return
		}
	}
}

// Park has the poller tell of the queue, also if its consumer polls it meanwhile.
func (c *cq) Park() bool { return c.interest.Enter() }

// Unpark ends that.
func (c *cq) Unpark() { c.interest.Leave() }
