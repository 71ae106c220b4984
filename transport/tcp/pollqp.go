package tcp

// PollQP leaves to a pass what only that does: to admit new connections, and to have the poller watch the
// sockets, or not.
func (q *qp) PollQP() (polled, came bool) {
	c := q.rcq
	if c.Due() || c.Sleepers.Wanted.Load() || c.interest.on && len(c.qps) <= readDirectly {
		return false, false
	}
	return true, q.drive()
}
