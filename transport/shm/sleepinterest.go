package shm

import (
	"slices"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// maxPolledQPs is the largest number of queue pairs that a completion queue polls itself in each pass. Their
// peers' Writes leave no trace but their bytes.
const maxPolledQPs = 16

// interest is whether peers ring the doorbell of a completion queue: always if it has many queue pairs, or a
// handler; otherwise only while somebody wants to sleep, because it costs the peers time.
type interest struct {
	notified     bool        // peers notify
	on           bool        // somebody wants to sleep
	everNotified bool        // the queue has had many queue pairs, or a handler
	busy         int         // passes that found something since somebody last wanted to sleep
	pending      atomic.Bool // a pass has work, even without a notification
}

// disarmAfter is the number of passes that must find something before peers stop notifying: a rank that
// sleeps between single messages stays notified.
const disarmAfter = 16

// Arm makes the peers notify, so that a Wait can sleep.
func (c *cq) Arm() {
	a := &c.interest
	a.busy = 0
	c.Sleepers.Wanted.Store(false)
	if !a.on {
		a.on = true
		c.enableNotify()
	}
}

// notePending notes whether a pass has work without a notification, which must prevent sleeping.
func (c *cq) notePending() {
	pending := c.HasPlaced()
	for i := 0; i < len(c.active) && !pending; i++ {
		pending = !c.active[i].stuck()
	}
	c.interest.pending.Store(pending)
}

// enableNotify makes the peers notify, or stop notifying, as needed. A peer that began an operation earlier
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

// activate makes every pass drive a queue pair until it has no work.
func (c *cq) activate(q *qp) {
	if !slices.Contains(c.active, q) {
		c.active = append(c.active, q)
	}
}

// reactivate makes the next pass check an active queue pair for frames, room and placed Writes, because it
// has received no notification yet.
func (c *cq) reactivate(q *qp) {
	q.busy = true
	if q.rcq == c {
		q.writeSeq = atomic.LoadUint64(&q.in.writeSeq)
		q.ReportPlaced()
	}
}

// always reports whether the peers must notify even if nobody wants to sleep. Once they do, they continue: a
// consumer that relies on notifications need not notice that it must poll by itself again.
func (c *cq) always() bool {
	c.interest.everNotified = c.interest.everNotified || len(c.qps) > maxPolledQPs || c.handled
	return c.interest.everNotified
}

// stuck reports whether this end can only wait for the peer.
func (q *qp) stuck() bool {
	if q.out.waits || q.SQ.Head == q.SQ.Tail {
		return true
	}
	return q.reads.asking() != nil
}

// disarm stops the notifications for a queue with few queue pairs, unless somebody sleeps.
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
	c.active = c.active[:0] // every pass polls all
	for _, q := range c.qps {
		if !q.other(c).interest.notified || q.other(c) == c {
			sys.StoreRelease(&q.in.notifyEnable, 0)
		}
	}
}

// wakeSleepers ends a sleep, because a pass has work.
func (c *cq) wakeSleepers() {
	c.interest.pending.Store(true)
	if c.Sleepers.Any() {
		c.Wake()
	}
}
