package queuepair

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// NotifyCQ is a completion queue for a provider whose peers call Notify for whatever comes: its driver sleeps
// in a poller, out of which Notify wakes it.
type NotifyCQ struct {
	CQ

	qps      []Driven // driven by a pass
	sleepers Sleepers
	due      atomic.Bool // a pass has something to do

	mu    sync.Mutex // guards what follows, and the poller's end
	inbox []Driven   // handed over by connection management
}

// Driven is a queue pair of a NotifyCQ.
type Driven interface {
	Core() *QP

	// Drive takes in what the peer has said, and sends what can be sent. It tells whether anything came.
	Drive() bool
}

// NewNotifyCQ makes a completion queue, and gives it to a handler or to none.
func (d *Device) NewNotifyCQ(depth int, id transport.HandlerID) (*NotifyCQ, error) {
	if err := d.CheckCQ(depth); err != nil {
		return nil, err
	}
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	c := &NotifyCQ{}
	c.sleepers.Enable()
	if err := d.AddCQ(&c.CQ, c, poller, depth, id); err != nil {
		return nil, err
	}
	return c, nil
}

// Poll makes a pass and returns completions.
func (c *NotifyCQ) Poll(wc []transport.WC) int {
	c.Pass()
	return c.Take(wc)
}

// Pass drives the queue pairs once.
func (c *NotifyCQ) Pass() (found bool) {
	c.due.Store(false)
	c.Admit()
	for _, q := range slices.Clone(c.qps) {
		found = q.Drive() || found
	}
	return found
}

// Notify has the queue's driver make a pass. It may be called from any goroutine.
func (c *NotifyCQ) Notify() {
	c.due.Store(true)
	if c.sleepers.Any() {
		c.Wake()
	}
}

// Wake ends a Wait.
func (c *NotifyCQ) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.Poller(); p != nil {
		p.Wake()
	}
}

// Wait blocks in the poller.
func (c *NotifyCQ) Wait(d time.Duration) error {
	if entered, err := c.EnterWait(); !entered {
		return err
	}
	defer c.sleepers.Leave()
	return c.Poller().Wait(d)
}

// EnterWait begins a wait; false if a pass has something to do.
func (c *NotifyCQ) EnterWait() (bool, error) {
	if err := c.Free("Wait"); err != nil {
		return false, err
	}
	if !c.sleepers.Enter() {
		return false, transport.ErrDeviceGone
	}
	if c.due.Load() {
		c.sleepers.Leave()
		return false, nil
	}
	return true, nil
}

// LeaveWait ends a wait and consumes the Wake that may have ended it.
func (c *NotifyCQ) LeaveWait() {
	c.Poller().Drain()
	c.sleepers.Leave()
}

// Arm has nothing to do: what comes notifies.
func (c *NotifyCQ) Arm() {}

// Tick has nothing to do: DeviceAttr.TickPeriod is 0.
func (c *NotifyCQ) Tick(time.Time) {}

// Dispose ends whoever waits, and closes the poller.
func (c *NotifyCQ) Dispose() {
	c.sleepers.Close(c.Handling().Parked(), c.Wake)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ClosePoller()
}

// HandOver gives a connected queue pair to the queue's driver. It may be called from any goroutine.
func (c *NotifyCQ) HandOver(q Driven) {
	c.mu.Lock()
	c.inbox = append(c.inbox, q)
	c.mu.Unlock()
	c.Notify()
}

// Admit attaches what was handed over.
func (c *NotifyCQ) Admit() {
	c.mu.Lock()
	qps := c.inbox
	c.inbox = nil
	c.mu.Unlock()
	for _, q := range qps {
		if !q.Core().Ended() && !slices.Contains(c.qps, q) {
			c.qps = append(c.qps, q)
			q.Core().Admit(&c.CQ)
		}
	}
}

// Detach takes a queue pair off.
func (c *NotifyCQ) Detach(q Driven) {
	c.qps = slices.DeleteFunc(c.qps, func(o Driven) bool { return o == q })
}

// What a handler needs of a queue.

func (c *NotifyCQ) Waited() bool { return c.sleepers.Any() }
func (c *NotifyCQ) Handled(bool) {}
func (c *NotifyCQ) Unpark()      { c.sleepers.Leave() }

func (c *NotifyCQ) Park() bool {
	if !c.sleepers.Enter() {
		return false
	}
	if c.due.Load() {
		c.Wake()
	}
	return true
}

// Each goes through the queue pairs that are attached.
func (c *NotifyCQ) Each(yield func(*QP) bool) {
	for _, q := range slices.Clone(c.qps) {
		if !yield(q.Core()) {
			return
		}
	}
}
