package shm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// cq is a completion queue; polling it drives the queue pairs attached to it.
type cq struct {
	queuepair.CQ
	dev *Device

	qps      queuepair.Members[*qp] // driven by a pass
	active   []*qp                  // those with work at this end
	interest interest
	wake     wakeName // of the poller's wake socket

	// The doorbell and its slots.
	doorbell    *doorbell
	doorbellOff int64
	slots       struct {
		sync.Mutex
		free []uint32
		next uint32
	}
	bySlot []*qp // attached queue pairs

	handled bool // a handler has the queue, or is about to get it

	clock keepalive.Clock
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(depth int, id transport.HandlerID) (transport.CQ, error) {
	if err := d.CheckCQ(depth); err != nil {
		return nil, err
	}
	poller, wake, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	off, err := d.arena.doorbell()
	if err != nil {
		poller.Close()
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &cq{dev: d, wake: wake, clock: keepalive.Clock{Period: d.tickPeriod()},
		doorbell: doorbellAt(d.arena.mem, uint64(off)), doorbellOff: off}
	if err := d.AddCQ(&c.CQ, c, poller, depth, id); err != nil {
		d.arena.putDoorbell(off)
		return nil, err
	}
	return c, nil
}

// Pass drives the queue pairs once, and reports whether anything was done.
func (c *cq) Pass() (found bool) {
	if c.Due() {
		if !c.admit() {
			return false
		}
		found = true
	}
	if c.Sleepers.Wanted.Load() {
		c.Arm()
	}
	if c.interest.notified {
		found = c.pollDoorbell() || found
		if len(c.active) > 0 {
			found = c.driveActive() || found
		}
	} else {
		for i := 0; i < len(c.qps); {
			q := c.qps[i]
			if !q.idle() {
				found = q.drive() || found
			}
			i += c.qps.Step(i, q)
		}
	}
	if found && c.interest.notified {
		c.disarm()
	}
	if c.interest.pending.Load() {
		c.notePending()
	}
	return found
}

// pollDoorbell drives the queue pairs whose peers have rung the doorbell.
func (c *cq) pollDoorbell() (found bool) {
	if !c.doorbell.pending() {
		return false
	}
	c.doorbell.each(func(slot int) {
		if slot >= len(c.bySlot) || c.bySlot[slot] == nil {
			return // it has ended
		}
		q := c.bySlot[slot]
		if w := atomic.LoadUint64(&q.in.writeSeq); w != q.writeSeq && q.rcq == c {
			q.writeSeq = w
			q.ReportPlaced()
			found = true
		}
		found = q.drive() || found
	})
	return found
}

// driveActive drives the queue pairs with work at this end.
func (c *cq) driveActive() (found bool) {
	for i := 0; i < len(c.active); {
		q := c.active[i]
		found = q.drive() || found
		if i < len(c.active) && c.active[i] == q {
			if q.busy && q.connected() {
				i++
			} else {
				c.active = slices.Delete(c.active, i, i+1)
				if o := q.other(c); o != c {
					o.active = slices.DeleteFunc(o.active, func(x *qp) bool { return x == q })
				}
			}
		}
	}
	return found
}

// Sleep makes peers that ring from now on wake the poller.
func (c *cq) Sleep() bool {
	// peers set a bit, and then, after a fence, read sleeping
	sys.StoreFenced(&c.doorbell.sleeping, 1)
	return !c.doorbell.pending() && !c.interest.pending.Load()
}

// Awake ends what Sleep began.
func (c *cq) Awake() { atomic.StoreUint64(&c.doorbell.sleeping, 0) }

// Close releases the queue.
func (c *cq) Close() error {
	err := c.CQ.Close()
	if err == nil && c.slots.next == 0 { // else peers may still ring
		c.dev.arena.putDoorbell(c.doorbellOff)
	}
	return err
}

// handOver queues a connected queue pair for the queue's driver. It may be called from any goroutine.
func (c *cq) handOver(q *qp) { c.HandOver(queuepair.Arrival{Enter: func() { c.attach(q) }}) }

// Admit attaches the queue pairs that were handed over.
func (c *cq) Admit() { c.admit() }

// admit attaches the queue pairs that were handed over, and ends those whose connections have ended. It
// returns false if the queue itself is closed: its memory is gone.
func (c *cq) admit() bool {
	if !c.TakeIn() {
		return false
	}
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		if q.lost.Load() {
			q.ended()
		}
		i += c.qps.Step(i, q)
	}
	return true
}

// slotOf returns the queue pair's bit in the doorbell of a queue.
func (q *qp) slotOf(c *cq) uint32 {
	if c == q.rcq {
		return q.conn.slots[1]
	}
	return q.conn.slots[0]
}

func (c *cq) attach(q *qp) {
	if !c.qps.Add(q) {
		return // it has ended before
	}
	slot := int(q.slotOf(c))
	if n := slot + 1 - len(c.bySlot); n > 0 {
		c.bySlot = append(c.bySlot, make([]*qp, n)...)
	}
	c.bySlot[slot] = q
	if !q.Admit(&c.CQ) {
		return
	}
	if c.interest.notified && q.in.notifyEnable == notifyTell {
		c.activate(q) // the others are notified already
		c.reactivate(q)
		c.interest.pending.Store(true)
		return
	}
	c.enableNotify()
}

func (c *cq) detach(q *qp) {
	if c.qps.Remove(q) {
		c.bySlot[q.slotOf(c)] = nil
	}
	c.active = slices.DeleteFunc(c.active, func(o *qp) bool { return o == q })
}

// slot allocates a bit of the doorbell.
func (c *cq) slot() (uint32, error) {
	c.slots.Lock()
	defer c.slots.Unlock()
	if n := len(c.slots.free); n > 0 {
		s := c.slots.free[n-1]
		c.slots.free = c.slots.free[:n-1]
		return s, nil
	}
	if c.slots.next == maxSlots {
		return 0, fmt.Errorf("%w: a completion queue has at most %d queue pairs", transport.ErrInvalid,
			maxSlots)
	}
	c.slots.next++
	return c.slots.next - 1, nil
}

func (c *cq) putSlot(s uint32) {
	c.slots.Lock()
	c.slots.free = append(c.slots.free, s)
	c.slots.Unlock()
}
