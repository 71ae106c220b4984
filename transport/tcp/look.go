package tcp

import "github.com/weft-mpi/weft/transport"

var _ transport.Looker = (*qp)(nil)

// Look leaves to a pass what only that does: to admit new connections, and to have the poller watch the sockets, or not.
func (q *qp) Look() (looked, came bool) {
	c := q.rcq
	if c.arrivals.Load() || c.arming.wanted.Load() || c.arming.on && len(c.qps) <= readDirectly {
		return false, false
	}
	return true, q.drive()
}
