package tcp

// interest is whether the sockets of a completion queue are watched by its poller. Watching a socket costs a
// wake-up per received TCP segment, even if the receiver polls and does not need it. So few queue pairs are
// watched only while somebody wants to sleep. Many always are, because a pass asks the poller which of them
// have data.
type interest struct {
	on   bool // the sockets are watched
	busy int  // passes that found something since then
}

// disarmAfter is the number of passes that must find something before watching ends: a rank that sleeps
// between single messages stays watched.
const disarmAfter = 16

// Arm makes the poller watch the sockets, so that a Wait can sleep.
func (c *cq) Arm() {
	a := &c.interest
	if a.on {
		a.busy = 0
		return
	}
	a.on, a.busy = true, 0
	c.Sleepers.Enable()
	c.Sleepers.Wanted.Store(false)
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		q.sequencer.watch(c)
		i += c.qps.Step(i, q)
	}
}

// disarm stops watching the sockets of few queue pairs, unless somebody sleeps.
func (c *cq) disarm() {
	a := &c.interest
	a.busy = 0
	if len(c.qps) > readDirectly {
		return
	}
	if !c.Sleepers.Disable() {
		return
	}
	for _, q := range c.qps {
		q.sequencer.unwatch(c)
	}
	a.on = false
}

// watchConn makes the poller watch a link's socket, if sockets are watched.
func (c *cq) watchConn(l *conn) error {
	// the links of a queue pair that is not yet attached are added then
	if num := int(l.q.Num()); !c.interest.on || l.fd < 0 || num >= len(c.byNum) || c.byNum[num] == nil {
		return nil
	}
	return c.Poller().Add(l.fd, int32(l.q.Num()), l.blocked)
}

// rewatchConn changes what a link's socket is watched for.
func (c *cq) rewatchConn(l *conn) {
	if c.interest.on && l.fd >= 0 {
		c.Poller().Change(l.fd, int32(l.q.Num()), l.blocked)
	}
}

// unwatchConn ends the watch.
func (c *cq) unwatchConn(l *conn) {
	if c.interest.on && l.fd >= 0 {
		c.Poller().Remove(l.fd)
	}
}
