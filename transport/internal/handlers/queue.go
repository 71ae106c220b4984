package handlers

import (
	"fmt"
	"iter"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// Queue is a completion queue as handlers see it. All is called under the lock that serializes the queue.
type Queue interface {
	transport.CQ

	// Handling is what the queue knows of its handler and its events.
	Handling() *Handling

	// Poller is what shows traffic, Wake and raised events; nil once the queue is closed.
	Poller() *sys.Poller

	// Pass drives the queue's queue pairs once, and reports whether anything came.
	Pass() bool

	// Park has the poller tell of the queue from now on, if it can; Unpark ends that.
	Park() bool
	Unpark()

	// Admit attaches the queue pairs that have been handed over.
	Admit()

	// Waited reports whether a goroutine is in Wait.
	Waited() bool

	// Others yields the other completion queue of each queue pair that has two.
	Others() iter.Seq[*Handling]

	// Handled tells the queue that it is given to a handler, or to none.
	Handled(by bool)
}

// Handling is what a completion queue knows of its handler and its events. All but the handler is used under
// the lock that serializes the queue.
type Handling struct {
	set     *Set                    // of the queue's device
	handler atomic.Pointer[Handler] // who has the queue; nil for none
	armed   transport.Notify        // what raises an event
	event   bool                    // one has been raised, and not delivered
	serving bool                    // in a turn of its handler, which looks for an event by itself
	parked  bool                    // its handler waits for traffic
	idle    time.Time               // since when its handler's passes have found nothing, while it spins
	served  int32                   // its number at its handler's thread
}

// By is the handler that has the queue; 0 for none.
func (h *Handling) By() transport.HandlerID {
	if by := h.handler.Load(); by != nil {
		return by.id
	}
	return 0
}

// Free refuses what cannot be done to a queue that a handler has.
func (h *Handling) Free(what string) error {
	if by := h.handler.Load(); by != nil {
		return fmt.Errorf("%w: %s: handler %d has the completion queue", transport.ErrInvalid, what, by.id)
	}
	return nil
}

// Locked calls f with the lock of the queue's handler, if one has it.
func (h *Handling) Locked(f func()) {
	if by := h.handler.Load(); by != nil {
		by.conf.Lock.Lock()
		defer by.conf.Lock.Unlock()
	}
	f()
}

// SameLock reports whether two queues can be those of one queue pair.
func (h *Handling) SameLock(o *Handling) bool { return sameLock(h.handler.Load(), o.handler.Load()) }

func sameLock(a, b *Handler) bool { return a == nil || b == nil || a.conf.Lock == b.conf.Lock }

// Armed is what raises an event.
func (h *Handling) Armed() transport.Notify { return h.armed }

// Request asks for one event.
func (h *Handling) Request(n transport.Notify) error {
	if err := n.Check(); err != nil {
		return err
	}
	h.armed |= n
	return nil
}

// Match reports whether an event of this kind was requested. If so, the caller raises it.
func (h *Handling) Match(n transport.Notify) bool {
	if h.armed&n == 0 {
		return false
	}
	h.armed = 0
	return true
}

// Completed raises the events that were requested for a completion with this status.
func Completed(q Queue, status transport.Status) {
	RaiseFor(q, transport.NotifyNext)
	if status != transport.StatusSuccess {
		RaiseFor(q, transport.NotifySolicited)
	}
}

// RaiseFor raises an event of a queue if it was asked for.
func RaiseFor(q Queue, n transport.Notify) {
	if h := q.Handling(); h.Match(n) && !h.Raise() {
		q.Wake()
	}
}

// Raise has the handler deliver an event; false if the queue is to be woken for that.
func (h *Handling) Raise() bool {
	h.event = true
	return h.serving
}

// Parked reports whether the handler waits for traffic.
func (h *Handling) Parked() bool { return h.parked }

func (h *Handling) park(q Queue) {
	if !h.parked && q.Park() {
		h.parked = true
	}
}

func (h *Handling) unpark(q Queue) {
	if h.parked {
		h.parked = false
		q.Unpark()
	}
}
