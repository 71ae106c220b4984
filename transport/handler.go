package transport

import (
	"fmt"
	"sync"
	"time"
)

// HandlerID names a completion handler of a device. 0 stands for none.
type HandlerID uint32

// Class is the priority of a completion handler among those of the same core.
type Class uint8

const (
	LowLatency Class = iota // served first
	// served when nothing of LowLatency waits, and at the latest after BulkAfter turns of it
	Bulk
)

// BulkAfter is how many turns of class LowLatency may go before one of class Bulk that is known to wait.
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

// HandlerConfig is what a completion handler is made of (N2): the core that it runs on, and the consumer that
// it serves.
//
// A handler drives the completion queues that are given to it, in the place of who would poll them, and tells
// its consumer of their events. It is one more user of these queues and their queue pairs, and so it takes
// the consumer's Lock for each pass and for each call of Complete. Queues that a queue pair connects (its
// send and its receive queue) need handlers with the same Lock, or none.
type HandlerConfig struct {
	// Core is the processor, by the system's number, on which the handler's thread stays. Handlers of one
	// core share a thread. -1: a thread of its own, which the system puts where it likes.
	Core int

	// Class is the handler's priority among the handlers of its core.
	Class Class

	// Lock is the consumer's own: it holds it whenever it uses a queue of the handler or what belongs to
	// that.
	Lock sync.Locker

	// Spin is how long the handler goes on making passes before it sleeps. It pays on a core that nobody else
	// wants; 0 is for all others.
	Spin time.Duration

	// Complete is called for each event, on the handler's thread, with Lock held, never twice at a time. It
	// may use everything that Lock guards, but not close the handler or the device. While it runs no queue of
	// the same core is served.
	Complete func(h HandlerID, cq CQ)
}

// Check refuses a configuration that no provider can serve.
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

// Notify says what raises an event. OR them.
type Notify uint8

const (
	NotifyNext Notify = 1 << iota // any completion
	// the completion of a receive that the peer has marked with FlagSolicited, or any error
	NotifySolicited
	// bytes of a Write that were placed: CQ.Placed has something new to tell
	NotifyPlaced
)

// Check refuses what asks for nothing, or for what does not exist.
func (n Notify) Check() error {
	if n == 0 || n&^(NotifyNext|NotifySolicited|NotifyPlaced) != 0 {
		return fmt.Errorf("%w: notification of %#x", ErrInvalid, uint8(n))
	}
	return nil
}
