package tcp

// interest is whether the sockets of a completion queue are watched by its poller. A socket that is costs its
// sender a wake-up for each segment, also while the receiver polls and needs none. So few sockets are watched
// only while somebody wants to sleep; many always are, because a pass asks the poller which of them have
// anything.
type interest struct {
	on   bool // sleep is possible
	busy int  // passes since it is on that found something
}

// disarmAfter is how many passes have to find something before watching ends: a rank that sleeps between
// single messages goes on being watched.
const disarmAfter = 16

// Arm has the poller watch the sockets, so that a Wait can sleep.
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

// disarm ends the watch of few sockets, unless somebody sleeps.
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

// watchConn adds a link's socket to those that are watched, if any are.
func (c *cq) watchConn(l *conn) error {
	// if the queue pair is yet to be attached, its links are then
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
