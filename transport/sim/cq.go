package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weft-mpi/weft/transport"
)

type cq struct {
	dev     *device
	depth   int
	rng     *rand.Rand
	qps     []*qp // attached
	wcs     []transport.WC
	placed  []transport.QPN
	overrun error
	woken   bool
	wakeup  chan struct{} // ends a Wait
	waiters int           // goroutines in Wait
	closed  bool

	handler   *handler
	requested transport.Notify
	event     bool // raised and not delivered
}

func (c *cq) Poll(wc []transport.WC) int {
	n := c.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	c.pass()
	k := copy(wc, c.wcs)
	c.wcs = c.wcs[:copy(c.wcs, c.wcs[k:])]
	return k
}

// pass drives the queue pairs, in an order drawn from the seed.
func (c *cq) pass() {
	if c.closed || c.dev.gone {
		return
	}
	for _, i := range c.rng.Perm(len(c.qps)) {
		c.qps[i].pass()
	}
}

func (c *cq) Placed(qps []transport.QPN) int {
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	k := copy(qps, c.placed)
	c.placed = c.placed[:copy(c.placed, c.placed[k:])]
	return k
}

// Tick does nothing: the end of a connection is always reported, so no peer is silent.
func (c *cq) Tick(time.Time) {}

func (c *cq) markPlaced(num transport.QPN) {
	if c.dev.net.mutant == neverPlaced {
		return
	}
	for _, have := range c.placed {
		if have == num {
			return
		}
	}
	c.placed = append(c.placed, num)
	c.match(transport.NotifyPlaced)
}

// push adds a completion. One beyond the depth moves the CQ and all its QPs into error. It is kept
// nevertheless, as are the flushed requests that follow: a completion is never lost.
func (c *cq) push(wc transport.WC) {
	if c.closed {
		return
	}
	if len(c.wcs) >= c.depth && c.dev.net.mutant == dropOverrun {
		return
	}
	c.wcs = append(c.wcs, wc)
	c.signal()
	c.match(transport.NotifyNext)
	if wc.Status != transport.StatusSuccess {
		c.match(transport.NotifySolicited)
	}
	if len(c.wcs) <= c.depth || c.overrun != nil {
		return
	}
	c.raise()
	c.dev.net.counters.Overruns++
	c.overrun = fmt.Errorf("%d unpolled completions: %w", len(c.wcs), transport.ErrOverrun)
	for _, q := range append([]*qp(nil), c.qps...) {
		q.pending = &fault{err: c.overrun, status: transport.StatusFlushed}
		q.cutPeer(fmt.Errorf("%s: its completion queue overran: %w", q, transport.ErrPeerLost))
	}
}

// drop discards the completions of a queue pair that is given back.
func (c *cq) drop(num transport.QPN) {
	kept := c.wcs[:0]
	for _, wc := range c.wcs {
		if wc.QP != num {
			kept = append(kept, wc)
		}
	}
	c.wcs = kept
	for i, have := range c.placed {
		if have == num {
			c.placed = append(c.placed[:i], c.placed[i+1:]...)
			break
		}
	}
}

func (c *cq) signal() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
	if c.handler != nil {
		c.handler.core.signal()
	}
}

// ready reports whether a Poll or Placed may find something.
func (c *cq) ready() bool {
	if c.woken || c.event || c.closed || c.dev.gone || len(c.wcs) > 0 || len(c.placed) > 0 {
		return true
	}
	for _, q := range c.qps {
		if q.busy() {
			return true
		}
	}
	return false
}

// Arm does nothing, as a Wait is always notified, unless a run must be repeatable: then it drops a Wake that
// came after the last Wait had been woken.
func (c *cq) Arm() {
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	if c.dev.net.manual {
		c.woken = false
	}
}

// Wait returns as soon as Poll may find something. If a run must be repeatable, a Wait that has blocked
// returns whenever it is woken: others use the queue meanwhile, so what Wait saw then would depend on the
// scheduler. Whether it blocks does not, as its caller has the turn.
func (c *cq) Wait(d time.Duration) error {
	var timeout <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	n := c.dev.net
	n.mu.Lock()
	if h := c.handler; h != nil { // ModifyCQ may change it as soon as the lock is free
		n.mu.Unlock()
		return fmt.Errorf("Wait on a completion queue that handler %d has: %w", h.id, transport.ErrInvalid)
	}
	c.waiters++
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		c.waiters--
		n.mu.Unlock()
	}()
	for {
		n.mu.Lock()
		ready, gone := c.ready(), c.closed || c.dev.gone
		c.woken = false
		if n.manual {
			c.dropSignal()
		}
		n.mu.Unlock()
		if gone {
			return c.dev.goneErr()
		}
		if ready {
			return nil
		}
		select {
		case <-c.wakeup:
			if n.manual {
				return nil
			}
		case <-timeout:
			return nil
		}
	}
}

// dropSignal drops the signal of what has been seen.
func (c *cq) dropSignal() {
	select {
	case <-c.wakeup:
	default:
	}
}

// Descriptor returns -1: see DeviceAttr.PollableCQs.
func (c *cq) Descriptor() int { return -1 }

// EnterWait does nothing.
func (c *cq) EnterWait() (bool, error) { return false, nil }

// LeaveWait does nothing.
func (c *cq) LeaveWait() {}

// Wake ends a Wait.
func (c *cq) Wake() {
	n := c.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mutant == wakeLost {
		return
	}
	c.woken = true
	c.signal()
}

func (c *cq) Close() error {
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	if len(c.qps) > 0 && !c.dev.gone {
		return fmt.Errorf("close completion queue: %d queue pairs still use it: %w", len(c.qps),
			transport.ErrInvalid)
	}
	if c.handler != nil && !c.dev.gone {
		return fmt.Errorf("close completion queue: handler %d has it: %w", c.handler.id, transport.ErrInvalid)
	}
	c.closed = true
	c.signal()
	return nil
}
