package shm

import (
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
)

// notifying is what a completion queue knows of its events. All but handler is used under the lock that serialises the queue.
type notifying struct {
	handler atomic.Pointer[handler] // who has the queue; nil for none
	handled bool                    // somebody has it, or is about to
	armed   transport.Notify        // what raises an event
	event   bool                    // one has been raised, and not delivered
	serving bool                    // in a turn of its handler, which looks for an event by itself
	parked  bool                    // its handler waits for traffic: arming counts it as a sleeper
	idle    time.Time               // since when its handler's passes have found nothing, while it spins
	served  int32                   // its number at its handler's thread
}

// RequestNotify asks for one event.
func (c *cq) RequestNotify(n transport.Notify) error {
	if err := n.Check(); err != nil {
		return err
	}
	if n&transport.NotifyPlaced != 0 {
		c.Arm()
	}
	c.armed |= n
	return nil
}

// match raises the event if it was asked for.
func (c *cq) match(n transport.Notify) {
	if c.armed&n != 0 {
		c.armed = 0
		c.raise()
	}
}

// raise has the handler deliver an event.
func (c *cq) raise() {
	c.event = true
	if !c.serving {
		c.Wake()
	}
}
