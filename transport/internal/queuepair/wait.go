package queuepair

import (
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
)

// Arrival is a new queue pair, or a part of one, on its way from connection management to a queue's driver.
type Arrival struct {
	Enter func() // called by the driver
	Drop  func() // called instead if the queue is closed; may be nil
}

// inbox is the hand-off queue from connection management to a queue's driver.
type inbox struct {
	due atomic.Bool // the driver must call TakeIn; it stays set when the queue is closed

	mu     sync.Mutex // guards what follows, and the poller's end
	list   []Arrival
	closed bool
}

// HandOver queues an arrival for the driver. It may be called from any goroutine.
func (c *CQ) HandOver(a Arrival) {
	c.inbox.mu.Lock()
	closed := c.inbox.closed
	if !closed {
		c.inbox.list = append(c.inbox.list, a)
		c.notify()
	}
	c.inbox.mu.Unlock()
	if closed && a.Drop != nil {
		a.Drop()
	}
}

// Notify requests a pass of the driver. It may be called from any goroutine.
func (c *CQ) Notify() {
	c.inbox.due.Store(true)
	if c.Sleepers.Any() {
		c.inbox.mu.Lock() // so that the poller is not closed meanwhile
		defer c.inbox.mu.Unlock()
		c.notify()
	}
}

// notify is Notify with the inbox's lock held. A goroutine that goes to sleep checks due after it counts as a
// sleeper.
func (c *CQ) notify() {
	c.inbox.due.Store(true)
	if c.Sleepers.Any() && !c.inbox.closed {
		c.poller.Wake()
	}
}

// Due reports whether HandOver or Notify has been called since the last TakeIn, or the queue is closed.
func (c *CQ) Due() bool { return c.inbox.due.Load() }

// TakeIn calls Enter of all queued arrivals. It returns false if the queue is closed: nothing of it may be
// used.
func (c *CQ) TakeIn() bool {
	c.inbox.mu.Lock()
	if c.inbox.closed {
		c.inbox.mu.Unlock()
		return false
	}
	list := c.inbox.list
	c.inbox.list = nil
	c.inbox.due.Store(false)
	c.inbox.mu.Unlock()
	for _, a := range list {
		a.Enter()
	}
	return true
}

// Admit attaches the queue pairs that were handed over.
func (c *CQ) Admit() { c.TakeIn() }

// Poll makes a pass and returns completions.
func (c *CQ) Poll(wc []transport.WC) int {
	c.provider.Pass()
	return c.Take(wc)
}

// Wait blocks in the poller.
func (c *CQ) Wait(d time.Duration) error {
	if entered, err := c.EnterWait(); !entered {
		return err
	}
	defer c.Unpark()
	return c.poller.Wait(d)
}

// EnterWait begins a wait. It returns false if there may already be something to do, or nothing would end the
// wait.
func (c *CQ) EnterWait() (bool, error) {
	if err := c.handling.RequireFree("Wait"); err != nil {
		return false, err
	}
	if c.Sleepers.Closed() {
		return false, transport.ErrDeviceGone
	}
	if c.Due() || !c.Sleepers.Enter() {
		return false, nil
	}
	if !c.sleep() {
		c.Unpark()
		return false, nil
	}
	return true, nil
}

// sleep makes traffic and hand-offs wake the poller. It returns false if there is already something to do.
func (c *CQ) sleep() bool { return c.provider.Sleep() && !c.Due() }

// LeaveWait ends a wait, and consumes the Wake that may have ended it.
func (c *CQ) LeaveWait() {
	c.poller.Drain()
	c.Unpark()
}

// Wake ends a Wait. It may be called from any goroutine, and does nothing once the queue is closed.
func (c *CQ) Wake() {
	c.inbox.mu.Lock() // so that the poller is not closed meanwhile
	defer c.inbox.mu.Unlock()
	if c.poller != nil {
		c.poller.Wake()
	}
}

// Waited reports whether a goroutine is in Wait.
func (c *CQ) Waited() bool { return c.Sleepers.Any() }

// Park makes traffic wake the poller for the queue's handler, even if the consumer polls the queue meanwhile.
func (c *CQ) Park() bool {
	if !c.Sleepers.Enter() {
		return false
	}
	if !c.sleep() {
		c.Wake()
	}
	return true
}

// Unpark ends what Park or EnterWait began.
func (c *CQ) Unpark() {
	c.provider.Awake()
	c.Sleepers.Leave()
}

// Dispose closes the queue: it drops queued arrivals, ends every Wait and closes the poller.
func (c *CQ) Dispose() {
	c.inbox.mu.Lock()
	c.inbox.closed = true
	c.inbox.due.Store(true)
	list := c.inbox.list
	c.inbox.list = nil
	c.inbox.mu.Unlock()
	for _, a := range list {
		if a.Drop != nil {
			a.Drop()
		}
	}
	// not CQ.Wake, which would take the inbox's lock inside that of the sleepers
	c.Sleepers.Close(c.handling.Parked(), func() { c.poller.Wake() })
	c.inbox.mu.Lock()
	defer c.inbox.mu.Unlock()
	c.closePoller()
}
