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
	"github.com/weft-mpi/weft/transport/internal/ring"
)

// cq is a completion queue; polling it drives the queue pairs attached to it.
type cq struct {
	dev   *Device
	depth int
	users uatomic.Int32 // QPs that name it

	ring   []transport.WC // power of two in length
	head   uint32         // next to poll
	tail   uint32         // next to fill
	placed []*qp          // with Writes placed that nobody has been told of

	qps    []*qp // driven by a pass
	active []*qp // those with something to do here
	arming arming
	poller *sys.Poller

	// The bell and its slots.
	bell    *bell
	bellOff int64
	slots   struct {
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
	gone    uatomic.Bool // with its device: its memory is no more, and arrivals stays set
	overrun bool
	clock   clock
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(depth int, id transport.HandlerID) (transport.CQ, error) {
	if d.closed.Load() {
		return nil, transport.ErrDeviceGone
	}
	if depth < 1 || depth > maxCQDepth {
		return nil, fmt.Errorf("%w: a completion queue of depth %d; 1 to %d are possible", transport.ErrInvalid, depth, maxCQDepth)
	}
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	off, err := d.arena.block()
	if err != nil {
		poller.Close()
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &cq{dev: d, depth: depth, poller: poller, clock: clock{period: d.tickPeriod()}, ring: make([]transport.WC, 16),
		bell: bellAt(d.arena.mem, uint64(off)), bellOff: off}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.handlers.Give(c, id); err != nil {
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
	return c.take(wc)
}

// pass drives the queue pairs once, and tells whether anything came.
func (c *cq) pass() (found bool) {
	if c.arrivals.Load() {
		if !c.admit() {
			return false
		}
		found = true
	}
	if c.arming.wanted.Load() {
		c.Arm()
	}
	if c.arming.told {
		found = c.hear() || found
		if len(c.active) > 0 {
			found = c.goOn() || found
		}
	} else {
		for i := 0; i < len(c.qps); {
			q := c.qps[i]
			if !q.idle() {
				found = q.drive() || found
			}
			i += c.still(i, q)
		}
	}
	if found && c.arming.told {
		c.disarm()
	}
	if c.arming.pending.Load() {
		c.look()
	}
	return found
}

// hear drives the queue pairs whose peers have rung.
func (c *cq) hear() (found bool) {
	if !c.bell.rung() {
		return false
	}
	c.bell.each(func(slot int) {
		if slot >= len(c.bySlot) || c.bySlot[slot] == nil {
			return // it has ended
		}
		q := c.bySlot[slot]
		if w := atomic.LoadUint64(&q.in.wrote); w != q.wrote && q.rcq == c {
			q.wrote = w
			q.placed()
			found = true
		}
		found = q.drive() || found
	})
	return found
}

// goOn drives the queue pairs that have something to do here.
func (c *cq) goOn() (found bool) {
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

// still is the step to the next queue pair of a pass: none if the i-th has ended and the next has taken its place.
func (c *cq) still(i int, q *qp) int {
	if i < len(c.qps) && c.qps[i] == q {
		return 1
	}
	return 0
}

func (c *cq) take(wc []transport.WC) int {
	n := 0
	for n < len(wc) && c.head != c.tail {
		i := c.head & uint32(len(c.ring)-1)
		wc[n] = c.ring[i]
		c.ring[i].Err = nil
		c.head++
		n++
	}
	return n
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
	if err := c.handling.Free("Wait"); err != nil {
		return err
	}
	if c.arrivals.Load() || !c.arming.enter() {
		return nil
	}
	defer c.arming.leave()
	defer c.awake()
	if !c.sleep() {
		return nil
	}
	return c.poller.Wait(d)
}

// sleep has those who ring from now on write to the queue's event; false if there is something to do already.
func (c *cq) sleep() bool {
	atomic.StoreUint64(&c.bell.sleeping, 1) // with a barrier: the others set a bit, and look at this behind one
	return !c.bell.rung() && !c.arrivals.Load() && !c.arming.pending.Load()
}

// awake ends that.
func (c *cq) awake() { atomic.StoreUint64(&c.bell.sleeping, 0) }

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
		c.dev.arena.putBlock(c.bellOff)
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

// push adds a completion. When there is no room the queue is overrun: an error of the CQ, and of every QP that uses it.
func (c *cq) push(wc transport.WC) {
	n := int(c.tail - c.head)
	if n == c.depth {
		if !c.overrun {
			c.overrun = true
			c.raise()
			err := fmt.Errorf("%w: more than %d completions that nobody has polled", transport.ErrOverrun, c.depth)
			for _, q := range slices.Clone(c.qps) {
				q.fail(err, transport.StatusFatal)
			}
		}
		return
	}
	if n == len(c.ring) {
		c.ring = ring.Grow(c.ring, c.head, c.tail)
	}
	c.ring[c.tail&uint32(len(c.ring)-1)] = wc
	c.tail++
	if c.handling.Armed() != 0 {
		c.match(transport.NotifyNext)
		if wc.Status != transport.StatusSuccess {
			c.match(transport.NotifySolicited)
		}
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

// admit attaches what was handed over, and looks at connections that have ended; false if the queue itself has.
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
		i += c.still(i, q)
	}
	return true
}

// slotOf is the slot of a queue pair in a queue.
func (q *qp) slotOf(c *cq) uint32 {
	if c == q.rcq {
		return q.link.slots[1]
	}
	return q.link.slots[0]
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
	if c.overrun {
		q.fail(fmt.Errorf("%w: before the queue pair came", transport.ErrOverrun), transport.StatusFatal)
		return
	}
	if !c.handling.SameLock(&q.other(c).handling) {
		q.fail(handlers.ErrLocks, transport.StatusFatal)
		return
	}
	c.listen()
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
	kept := c.head
	for i := c.head; i != c.tail; i++ {
		if wc := c.ring[i&uint32(len(c.ring)-1)]; wc.QP != q.num {
			c.ring[kept&uint32(len(c.ring)-1)] = wc
			kept++
		}
	}
	c.tail = kept
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
		return 0, fmt.Errorf("%w: a completion queue of %d queue pairs takes no more", transport.ErrInvalid, maxSlots)
	}
	c.slots.next++
	return c.slots.next - 1, nil
}

func (c *cq) putSlot(s uint32) {
	c.slots.Lock()
	c.slots.free = append(c.slots.free, s)
	c.slots.Unlock()
}
