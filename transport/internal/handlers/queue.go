package handlers

import (
	"fmt"
	"iter"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// Queue is a completion queue as handlers see it. All methods except Handling and Wake are called under the
// lock that serializes the queue.
type Queue interface {
	transport.CQ

	// Handling returns the queue's handler and event state.
	Handling() *Handling

	// Poller returns the poller that traffic, Wake and raised events make ready; nil once the queue is
	// closed.
	Poller() *sys.Poller

	// Pass drives the queue's queue pairs once. It reports whether it found work: data that arrived or, with
	// some providers, only data to send.
	Pass() bool

	// Park makes traffic wake the poller, and reports whether that is possible; Unpark ends that.
	Park() bool
	Unpark()

	// Admit attaches the queue pairs that have been handed over.
	Admit()

	// Waited reports whether a goroutine is in Wait.
	Waited() bool

	// Others yields the other completion queue of each queue pair that has two.
	Others() iter.Seq[*Handling]

	// Handled is called when the queue is given to a handler (by is true), or to none.
	Handled(by bool)
}

// Handling is the handler and event state of a completion queue. All but the handler is used under the lock
// that serializes the queue.
type Handling struct {
	set       *Set                    // of the queue's device
	handler   atomic.Pointer[Handler] // of the queue; nil for none
	requested transport.Notify        // what raises an event
	event     bool                    // raised, and not yet delivered
	serving   bool                    // in a turn of its handler, which checks for an event itself
	parked    bool                    // its handler waits for traffic
	idle      time.Time               // since when the handler spins; zero if it does not
	served    int32                   // its number at its handler's thread
}

// By returns the handler of the queue; 0 for none.
func (h *Handling) By() transport.HandlerID {
	if by := h.handler.Load(); by != nil {
		return by.id
	}
	return 0
}

// RequireFree returns an error if a handler has the queue; op names the operation that it excludes.
func (h *Handling) RequireFree(op string) error {
	if by := h.handler.Load(); by != nil {
		return fmt.Errorf("%w: %s: handler %d has the completion queue", transport.ErrInvalid, op, by.id)
	}
	return nil
}

// Locked calls f, with the lock of the queue's handler held if it has one.
func (h *Handling) Locked(f func()) {
	if by := h.handler.Load(); by != nil {
		by.conf.Lock.Lock()
		defer by.conf.Lock.Unlock()
	}
	f()
}

// SameLock reports whether one queue pair may use both queues.
func (h *Handling) SameLock(o *Handling) bool { return sameLock(h.handler.Load(), o.handler.Load()) }

func sameLock(a, b *Handler) bool { return a == nil || b == nil || a.conf.Lock == b.conf.Lock }

// Requested returns what raises an event.
func (h *Handling) Requested() transport.Notify { return h.requested }

// Request requests one event.
func (h *Handling) Request(n transport.Notify) error {
	if err := n.Check(); err != nil {
		return err
	}
	h.requested |= n
	return nil
}

// Match reports whether an event of this kind was requested, and ends the request. If so, the caller raises
// the event.
func (h *Handling) Match(n transport.Notify) bool {
	if h.requested&n == 0 {
		return false
	}
	h.requested = 0
	return true
}

// Completed raises the events that were requested for a completion with this status.
func Completed(q Queue, status transport.Status) {
	RaiseFor(q, transport.NotifyNext)
	if status != transport.StatusSuccess {
		RaiseFor(q, transport.NotifySolicited)
	}
}

// RaiseFor raises an event of a queue if one of kind n was requested.
func RaiseFor(q Queue, n transport.Notify) {
	if h := q.Handling(); h.Match(n) && !h.Raise() {
		q.Wake()
	}
}

// Raise makes an event pending for the handler. It returns false if the queue must be woken to deliver it.
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
