package tcp

import (
	"sync"
	"sync/atomic"
)

// interest is whether the sockets of a completion queue are watched by its poller. A socket that is costs its
// sender a wake-up for each segment, also while the receiver polls and needs none. So few sockets are watched
// only while somebody wants to sleep; many always are, because a pass asks the poller which of them have
// anything.
type interest struct {
	sync.Mutex
	on       bool        // changed by the driver, with the lock
	sleepers int         // in Wait, and a handler that waits for traffic
	wanted   atomic.Bool // somebody wanted to sleep and could not
	busy     int         // passes since it is on that found something
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
	a.Lock()
	a.on, a.busy = true, 0
	a.Unlock()
	a.wanted.Store(false)
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		q.sequencer.watch(c)
		i += c.stepIfPresent(i, q)
	}
}

// disarm ends the watch of few sockets, unless somebody sleeps.
func (c *cq) disarm() {
	a := &c.interest
	a.busy = 0
	if len(c.qps) > readDirectly {
		return
	}
	a.Lock()
	defer a.Unlock()
	if a.sleepers > 0 {
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
	if num := int(l.q.num); !c.interest.on || l.fd < 0 || num >= len(c.byNum) || c.byNum[num] == nil {
		return nil
	}
	return c.poller.Add(l.fd, int32(l.q.num), l.blocked)
}

// rewatchConn changes what a link's socket is watched for.
func (c *cq) rewatchConn(l *conn) {
	if c.interest.on && l.fd >= 0 {
		c.poller.Change(l.fd, int32(l.q.num), l.blocked)
	}
}

// unwatchConn ends the watch.
func (c *cq) unwatchConn(l *conn) {
	if c.interest.on && l.fd >= 0 {
		c.poller.Remove(l.fd)
	}
}

// enter begins a sleep; false if nothing would end it.
func (a *interest) enter() bool {
	a.Lock()
	defer a.Unlock()
	if !a.on {
		a.wanted.Store(true)
		return false
	}
	a.sleepers++
	return true
}

// hasSleepers tells whether somebody sleeps.
func (a *interest) hasSleepers() bool {
	a.Lock()
	defer a.Unlock()
	return a.sleepers > 0
}

func (a *interest) leave() {
	a.Lock()
	defer a.Unlock()
	a.sleepers--
}
