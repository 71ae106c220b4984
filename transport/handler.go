package transport

import (
	"fmt"
	"sync"
	"time"
)

// HandlerID names a completion handler of a device. 0 means none.
type HandlerID uint32

// Class is the priority of a completion handler among those on the same core.
type Class uint8

const (
	LowLatency Class = iota // served first
	// served when no LowLatency handler waits, and at the latest after BulkAfter turns of such handlers
	Bulk
)

// BulkAfter is how many turns of class LowLatency may precede one of class Bulk that waits. A turn is one
// queue's share of a thread: a pass, and the call of Complete if an event is due.
const BulkAfter = 8

func (c Class) String() string {
	switch c {
	case LowLatency:
		return "low latency"
	case Bulk:
		return "bulk"
	}
	return "unknown class"
}

// HandlerConfig configures a completion handler (N2): the core on which it runs, and the consumer that it
// serves.
//
// A handler drives the completion queues that are given to it, in place of the consumer, and notifies the
// consumer of their events. It takes the consumer's Lock for each pass and for each call of Complete. The
// send and the receive queue of a queue pair need handlers with the same Lock, or none.
type HandlerConfig struct {
	// Core is the number of the CPU to which the handler's thread is bound. Handlers of one core share a
	// thread. -1: a thread of its own that the system may place anywhere.
	Core int

	// Class is the handler's priority among the handlers of its core.
	Class Class

	// Lock is the consumer's lock. The consumer holds it whenever it uses a queue of the handler or anything
	// that belongs to one.
	Lock sync.Locker

	// Spin is how long the handler goes on polling before it sleeps. It pays only on a core that nothing else
	// uses; use 0 elsewhere.
	Spin time.Duration

	// Complete is called for each event, on the handler's thread, with Lock held, never concurrently. It may
	// use everything that Lock guards, but must not close the handler or the device. While it runs, no queue
	// of the same core is served.
	Complete func(h HandlerID, cq CQ)

	// Counts, if not nil, counts what the handler does, under Lock. Handlers of the same Lock may share it.
	Counts *HandlerCounts
}

// HandlerCounts counts what completion handlers do.
type HandlerCounts struct {
	Wakes  uint64 // turns that began with a wake-up of the thread's poller
	Passes uint64 // over the queue pairs of a queue
}

// Check rejects a configuration that no provider can serve.
func (c *HandlerConfig) Check() error {
	switch {
	case c.Complete == nil:
		return fmt.Errorf("%w: a completion handler without Complete", ErrInvalid)
	case c.Lock == nil:
		return fmt.Errorf("%w: a completion handler without the Lock of its consumer", ErrInvalid)
	case c.Class > Bulk:
		return fmt.Errorf("%w: a completion handler of class %d", ErrInvalid, c.Class)
	case c.Core < -1:
		return fmt.Errorf("%w: a completion handler on core %d; -1 stands for any", ErrInvalid, c.Core)
	case c.Spin < 0:
		return fmt.Errorf("%w: a completion handler that spins for %v", ErrInvalid, c.Spin)
	}
	return nil
}

// Notify says what raises an event. Values are combined by OR.
type Notify uint8

const (
	NotifyNext Notify = 1 << iota // any completion
	// the completion of a receive that the peer has marked with FlagSolicited, or any error
	NotifySolicited
	// placed bytes of a Write: CQ.Placed has something new to report
	NotifyPlaced
)

// Check rejects an empty or unknown value.
func (n Notify) Check() error {
	if n == 0 || n&^(NotifyNext|NotifySolicited|NotifyPlaced) != 0 {
		return fmt.Errorf("%w: notification of %#x", ErrInvalid, uint8(n))
	}
	return nil
}
