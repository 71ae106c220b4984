package tcp

// PollQP does nothing when a full pass is needed: to attach new connections, or to start or stop watching the
// sockets.
func (q *qp) PollQP() (polled, came bool) {
	c := q.rcq
	if c.Due() || c.Sleepers.Wanted.Load() || c.interest.on && len(c.qps) <= readDirectly {
		return false, false
	}
	return true, q.drive()
}
