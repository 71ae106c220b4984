package inproc

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// cq is a completion queue. Peers call Notify for whatever they do to a queue pair of it.
type cq struct {
	queuepair.CQ

	qps queuepair.Members[*qp] // driven by a pass
}

func (d *device) CreateCQ(depth int, id transport.HandlerID) (transport.CQ, error) {
	if err := d.CheckCQ(depth); err != nil {
		return nil, err
	}
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &cq{}
	c.Sleepers.Enable()
	if err := d.AddCQ(&c.CQ, c, poller, depth, id); err != nil {
		return nil, err
	}
	return c, nil
}

// Pass drives the queue pairs once.
func (c *cq) Pass() (found bool) {
	c.TakeIn()
	for _, q := range slices.Clone(c.qps) {
		found = q.Drive() || found
	}
	return found
}

// Arm and Sleep do nothing, since peers always notify, and Tick since DeviceAttr.TickPeriod is 0.

func (c *cq) Arm()           {}
func (c *cq) Sleep() bool    { return true }
func (c *cq) Awake()         {}
func (c *cq) Tick(time.Time) {}
func (c *cq) Handled(bool)   {}

func (c *cq) Each(yield func(*queuepair.QP) bool) { c.qps.Each(yield) }

// handOver gives a connected queue pair to the queue's driver. It may be called from any goroutine.
func (c *cq) handOver(q *qp) {
	c.HandOver(queuepair.Arrival{Enter: func() {
		if c.qps.Add(q) {
			q.Admit(&c.CQ)
		}
	}})
}
