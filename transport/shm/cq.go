package shm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// cq is a completion queue; polling it drives the queue pairs attached to it.
type cq struct {
	dev   *Device
	users uatomic.Int32 // QPs that name it

	completions verbs.CompletionRing
	placed      []*qp // with Writes placed that nobody has been told of

	qps      []*qp // driven by a pass
	active   []*qp // those with something to do here
	interest interest
	poller   *sys.Poller
	wake     wakeName // of the poller's wake socket

	// The bell and its slots.
	doorbell    *doorbell
	doorbellOff int64
	slots       struct {
		sync.Mutex
		free []uint32
		next uint32
	}
	bySlot []*qp // of those attached

	handling handlers.Handling
	handled  bool // by somebody, or about to be

	arrivals uatomic.Bool // inbox has something, or a connection has ended
	inbox    struct {
		sync.Mutex
		qps []*qp // handed over by endpoint goroutines
	}
	gone  uatomic.Bool // with its device: its memory is no more, and arrivals stays set
	clock clock
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(depth int, id transport.HandlerID) (transport.CQ, error) {
	if d.closed.Load() {
		return nil, transport.ErrDeviceGone
	}
	if depth < 1 || depth > maxCQDepth {
		return nil, fmt.Errorf("%w: a completion queue of depth %d; 1 to %d are possible",
			transport.ErrInvalid, depth, maxCQDepth)
	}
	poller, wake, err := newPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	off, err := d.arena.block()
	if err != nil {
		poller.Close()
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &cq{dev: d, poller: poller, wake: wake, clock: clock{period: d.tickPeriod()},
		completions: verbs.NewCompletionRing(depth),
		doorbell:    doorbellAt(d.arena.mem, uint64(off)), doorbellOff: off}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.handlers.Add(c, id); err != nil {
		poller.Close()
		d.arena.putBlock(off)
		return nil, err
	}
	d.cqs = append(d.cqs, c)
	return c, nil
}

// Poll makes a pass and returns completions.
func (c *cq) Poll(wc []transport.WC) int {
	c.pass()
	return c.completions.Take(wc)
}

// pass drives the queue pairs once, and tells whether anything came.
func (c *cq) pass() (found bool) {
	if c.arrivals.Load() {
		if !c.admit() {
			return false
		}
		found = true
	}
	if c.interest.wanted.Load() {
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
			i += c.stepIfPresent(i, q)
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

// pollDoorbell drives the queue pairs whose peers have rung.
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
			q.placed()
			found = true
		}
		found = q.drive() || found
	})
	return found
}

// driveActive drives the queue pairs that have something to do here.
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

// stepIfPresent is the step to the next queue pair of a pass: none if the i-th has ended and the next has
// taken its place.
func (c *cq) stepIfPresent(i int, q *qp) int {
	if i < len(c.qps) && c.qps[i] == q {
		return 1
	}
	return 0
}

// Placed reports queue pairs that have had Writes placed.
func (c *cq) Placed(qps []transport.QPN) int {
	n := min(len(qps), len(c.placed))
	if n == 0 {
		return 0
	}
	for i, q := range c.placed[:n] {
		q.marked = false
		qps[i] = q.num
	}
	c.placed = c.placed[:copy(c.placed, c.placed[n:])]
	return n
}

// Wait blocks in the poller.
func (c *cq) Wait(d time.Duration) error {
	if entered, err := c.EnterWait(); !entered {
		return err
	}
	defer c.leave()
	return c.poller.Wait(d)
}

// Descriptor is the poller's own: it is readable after a doorbell or a Wake.
func (c *cq) Descriptor() int { return c.poller.Descriptor() }

// EnterWait begins a wait; false if something may have come already, or nothing would end the wait.
func (c *cq) EnterWait() (bool, error) {
	if err := c.handling.Free("Wait"); err != nil {
		return false, err
	}
	if c.arrivals.Load() || !c.interest.enterSleep() {
		return false, nil
	}
	if !c.sleep() {
		c.leave()
		return false, nil
	}
	return true, nil
}

// LeaveWait ends a wait and consumes what has ended it.
func (c *cq) LeaveWait() {
	c.poller.Drain()
	c.leave()
}

func (c *cq) leave() {
	c.awake()
	c.interest.leaveSleep()
}

// sleep has those who ring from now on wake the poller; false if there is something to do already.
func (c *cq) sleep() bool {
	// with a barrier: the others set a bit, and look at this after one
	atomic.StoreUint64(&c.doorbell.sleeping, 1)
	return !c.doorbell.pending() && !c.arrivals.Load() && !c.interest.pending.Load()
}

// awake ends that.
func (c *cq) awake() { atomic.StoreUint64(&c.doorbell.sleeping, 0) }

// Wake ends a Wait.
func (c *cq) Wake() { c.poller.Wake() }

// Close releases the queue.
func (c *cq) Close() error {
	if n := c.users.Load(); n > 0 {
		return fmt.Errorf("%w: %d queue pairs use the completion queue", transport.ErrInvalid, n)
	}
	if err := c.handling.Free("Close"); err != nil {
		return err
	}
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	c.release()
	if c.slots.next == 0 { // else peers may still ring
		c.dev.arena.putBlock(c.doorbellOff)
	}
	c.dev.cqs = slices.DeleteFunc(c.dev.cqs, func(o *cq) bool { return o == c })
	return nil
}

// release closes the poller. The device's mutex is held.
func (c *cq) release() {
	c.gone.Store(true)
	c.arrivals.Store(true)
	if c.poller != nil {
		c.poller.Close()
		c.poller = nil
	}
}

// Push adds a completion. When there is no room the queue is overrun: an error of the CQ, and of every QP
// that uses it.
func (c *cq) Push(wc transport.WC) {
	if !c.completions.Put(&wc) {
		if err := c.completions.Overrun(); err != nil {
			c.Raise()
			c.failAll(err, transport.StatusFatal)
		}
		return
	}
	if c.handling.Armed() != 0 {
		handlers.Completed(c, wc.Status)
	}
}

// handOver gives a connected QP to the queue's driver. It may be called from any goroutine.
func (c *cq) handOver(q *qp) {
	c.inbox.Lock()
	c.inbox.qps = append(c.inbox.qps, q)
	c.inbox.Unlock()
	c.arrive()
}

// arrive has the driver call admit. It may be called from any goroutine.
func (c *cq) arrive() {
	c.arrivals.Store(true)
	c.dev.mu.Lock() // so that the poller is not closed meanwhile
	defer c.dev.mu.Unlock()
	if c.poller != nil {
		c.Wake()
	}
}

// admit attaches what was handed over, and looks at connections that have ended; false if the queue itself
// has.
func (c *cq) admit() bool {
	if c.gone.Load() {
		return false
	}
	c.inbox.Lock()
	qps := c.inbox.qps
	c.inbox.qps = nil
	c.arrivals.Store(false)
	c.inbox.Unlock()
	for _, q := range qps {
		c.attach(q)
	}
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		if q.lost.Load() {
			q.ended()
		}
		i += c.stepIfPresent(i, q)
	}
	return true
}

// slotOf is the slot of a queue pair in a queue.
func (q *qp) slotOf(c *cq) uint32 {
	if c == q.rcq {
		return q.conn.slots[1]
	}
	return q.conn.slots[0]
}

func (c *cq) attach(q *qp) {
	if !q.connected() || slices.Contains(c.qps, q) {
		return // it has ended before
	}
	c.qps = append(c.qps, q)
	slot := int(q.slotOf(c))
	if n := slot + 1 - len(c.bySlot); n > 0 {
		c.bySlot = append(c.bySlot, make([]*qp, n)...)
	}
	c.bySlot[slot] = q
	if err := c.completions.Err(); err != nil {
		q.fail(err, transport.StatusFatal)
		return
	}
	if !c.handling.SameLock(&q.other(c).handling) {
		q.fail(handlers.ErrLocks, transport.StatusFatal)
		return
	}
	c.enableNotify()
}

func (c *cq) detach(q *qp) {
	if i := slices.Index(c.qps, q); i >= 0 {
		c.qps = slices.Delete(c.qps, i, i+1)
		c.bySlot[q.slotOf(c)] = nil
	}
	c.active = slices.DeleteFunc(c.active, func(o *qp) bool { return o == q })
}

// forget drops what the queue still holds of a QP.
func (c *cq) forget(q *qp) {
	c.detach(q)
	c.placed = slices.DeleteFunc(c.placed, func(o *qp) bool { return o == q })
	c.completions.Forget(q.num)
}

// slot takes a free bit of the bell.
func (c *cq) slot() (uint32, error) {
	c.slots.Lock()
	defer c.slots.Unlock()
	if n := len(c.slots.free); n > 0 {
		s := c.slots.free[n-1]
		c.slots.free = c.slots.free[:n-1]
		return s, nil
	}
	if c.slots.next == maxSlots {
		return 0, fmt.Errorf("%w: a completion queue of %d queue pairs takes no more", transport.ErrInvalid,
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
