package shm

import (
	"slices"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// maxPolledQPs is up to how many queue pairs a completion queue looks at itself in each pass. Their peers'
// Writes leave no trace but their bytes.
const maxPolledQPs = 16

// interest is whether peers tell a completion queue what they have done: always if it has many queue pairs,
// or a handler; else only while somebody wants to sleep, for it costs the peers something.
type interest struct {
	notified     bool        // they do
	on           bool        // because somebody wants to sleep
	everNotified bool        // it has had many queue pairs, or a handler
	busy         int         // passes since then that found something
	pending      atomic.Bool // a pass has something to do, whether or not anybody tells
}

// disarmAfter is how many passes have to find something before peers stop telling: a rank that sleeps between
// single messages goes on being told.
const disarmAfter = 16

// Arm has the peers tell, so that a Wait can sleep.
func (c *cq) Arm() {
	a := &c.interest
	a.busy = 0
	c.Sleepers.Wanted.Store(false)
	if !a.on {
		a.on = true
		c.enableNotify()
	}
}

// notePending notes whether a pass could do something without anybody's telling: that is not to be slept
// over.
func (c *cq) notePending() {
	pending := c.HasPlaced()
	for i := 0; i < len(c.active) && !pending; i++ {
		pending = !c.active[i].stuck()
	}
	c.interest.pending.Store(pending)
}

// enableNotify has the peers notify from now on, if that is wanted. A peer that began an operation earlier
// did not notify, so every queue pair is polled once more.
func (c *cq) enableNotify() {
	a := &c.interest
	before, told := a.notified, a.on || c.always()
	if a.notified = told; told {
		c.Sleepers.Enable()
	} else {
		c.Sleepers.Disable()
	}
	enable := uint64(0)
	if told {
		enable = notifyTell
	}
	changed := false
	for _, q := range c.qps {
		if old := q.in.notifyEnable; old != enable && (told || !q.other(c).interest.notified) {
			sys.StoreRelease(&q.in.notifyEnable, enable)
			changed = true
		}
	}
	if !told || before && !changed {
		return
	}
	if changed {
		c.dev.barrier()
	}
	c.active = append(c.active[:0], c.qps...)
	for _, q := range c.qps {
		c.reactivate(q)
	}
	a.pending.Store(true)
}

// activate has every pass drive a queue pair, once, until it has nothing to do.
func (c *cq) activate(q *qp) {
	if !slices.Contains(c.active, q) {
		c.active = append(c.active, q)
	}
}

// reactivate has the next pass over an active queue pair, which has been told of nothing yet, look for frames
// that have come, room, and what was placed.
func (c *cq) reactivate(q *qp) {
	q.busy = true
	if q.rcq == c {
		q.writeSeq = atomic.LoadUint64(&q.in.writeSeq)
		q.ReportPlaced()
	}
}

// always reports whether the peers are to tell even if nobody wants to sleep. Once they do, they go on: a
// consumer that has been told of everything need not notice that it is to look by itself again.
func (c *cq) always() bool {
	c.interest.everNotified = c.interest.everNotified || len(c.qps) > maxPolledQPs || c.handled
	return c.interest.everNotified
}

// stuck reports whether there is nothing to do but to wait for the peer.
func (q *qp) stuck() bool {
	if q.out.waits || q.SQ.Head == q.SQ.Tail {
		return true
	}
	return q.reads.asking() != nil
}

// disarm ends the telling of few, unless somebody sleeps.
func (c *cq) disarm() {
	a := &c.interest
	if a.busy++; !a.on || a.busy <= disarmAfter || c.Handling().Requested()&transport.NotifyPlaced != 0 {
		return
	}
	a.busy = 0
	if c.always() {
		a.on = c.Sleepers.Any()
		return
	}
	if !c.Sleepers.Disable() {
		return
	}
	a.on, a.notified = false, false
	c.active = c.active[:0] // every pass looks at all
	for _, q := range c.qps {
		if !q.other(c).interest.notified || q.other(c) == c {
			sys.StoreRelease(&q.in.notifyEnable, 0)
		}
	}
}

// wakeSleepers ends a sleep, since a pass has something to do.
func (c *cq) wakeSleepers() {
	c.interest.pending.Store(true)
	if c.Sleepers.Any() {
		c.Wake()
	}
}
