package tcp

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/transport"
)

// arming is whether the sockets of a completion queue are watched by its poller. A socket that is costs its sender a wake-up for each
// segment, also while the receiver polls and needs none. So few sockets are watched only while somebody wants to sleep; many always are,
// because a pass asks the poller which of them have anything.
type arming struct {
	sync.Mutex
	on       bool        // changed by the driver, with the lock
	sleepers int         // in Wait, and a handler that waits for traffic
	wanted   atomic.Bool // somebody wanted to sleep and could not
	busy     int         // passes since it is on that found something
}

// disarmAfter is how many passes have to find something before watching ends: a rank that sleeps between single messages goes on being
// watched.
const disarmAfter = 16

// Arm has the poller watch the sockets, so that a Wait can sleep.
func (c *cq) Arm() {
	a := &c.arming
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
		c.watch(q)
		i += c.still(i, q)
	}
}

// disarm ends the watch of few sockets, unless somebody sleeps.
func (c *cq) disarm() {
	a := &c.arming
	a.busy = 0
	if len(c.qps) > readDirectly {
		return
	}
	a.Lock()
	defer a.Unlock()
	if a.sleepers > 0 {
		return
	}
	a.on = false
	for _, q := range c.qps {
		if q.lanes != nil {
			for _, l := range q.lanes.links {
				c.poller.Remove(l.fd)
			}
			continue
		}
		c.poller.Remove(q.fd)
	}
}

// watch adds a socket to those that are watched, if any are.
func (c *cq) watch(q *qp) {
	if !c.arming.on {
		return
	}
	if q.lanes != nil {
		for _, l := range slices.Clone(q.lanes.links) {
			c.watchLane(l)
		}
		return
	}
	if err := c.poller.Add(q.fd, int32(q.num), q.blocked); err != nil {
		q.fail(fmt.Errorf("watching the connection: %w", err), transport.StatusFatal)
	}
}

// rewatch changes what a socket is watched for.
func (c *cq) rewatch(q *qp) {
	if c.arming.on && q.lanes == nil {
		c.poller.Change(q.fd, int32(q.num), q.blocked)
	}
}

// enter begins a sleep; false if nothing would end it.
func (a *arming) enter() bool {
	a.Lock()
	defer a.Unlock()
	if !a.on {
		a.wanted.Store(true)
		return false
	}
	a.sleepers++
	return true
}

// waits tells whether somebody sleeps.
func (a *arming) waits() bool {
	a.Lock()
	defer a.Unlock()
	return a.sleepers > 0
}

func (a *arming) leave() {
	a.Lock()
	defer a.Unlock()
	a.sleepers--
}

// The three below are for the lanes of a queue pair, each of which is a socket of its own.

func (c *cq) watchLane(l *link) {
	num := int(l.b.q.num)
	if !c.arming.on || l.fd < 0 || num >= len(c.byNum) || c.byNum[num] == nil { // if the queue pair is yet to be attached, its lanes are then
		return
	}
	if err := c.poller.Add(l.fd, int32(num), l.blocked); err != nil {
		l.b.lose(l, fmt.Errorf("watching the lane: %w", err))
	}
}

func (c *cq) rewatchLane(l *link) {
	if c.arming.on && l.fd >= 0 {
		c.poller.Change(l.fd, int32(l.b.q.num), l.blocked)
	}
}

func (c *cq) unwatchLane(l *link) {
	if c.arming.on && l.fd >= 0 {
		c.poller.Remove(l.fd)
	}
}
