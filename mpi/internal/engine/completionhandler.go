package engine

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// completionHandler is the progress thread of an endpoint, if its rank has cores for that: it makes the
// passes. Then a rank that computes still answers its peers, and a goroutine that waits only polls its own
// request.
type completionHandler struct {
	e       *Engine
	running atomic.Bool // there is a handler
	timer   *time.Timer // makes a pass for work that no event announces
	armed   bool        // the timer runs
	// changes whenever the handler, or a goroutine that advances collectives, may have completed something
	passes atomic.Uint32
	spin   time.Duration
	at     HandlerPlace
	served []*servedPlace // in the order in which the handler came to these places
	moving orderedMutex   // held while the queues go to another handler; before the lock of the engine
}

// HandlerPlace is where the completion handler of an endpoint runs, and which others it yields to.
type HandlerPlace struct {
	Core int
	// it yields to the handlers of the same core that are not bulk, but not forever (N7)
	Bulk bool
}

// servedPlace counts what the handlers of an endpoint have done at one place, under the lock of the engine.
type servedPlace struct {
	HandlerPlace
	events, completions uint64
	transport.HandlerCounts
}

// retryDelay is the time after which a handler retries work that found no room in a send queue: no event
// announces room.
const retryDelay = 200 * time.Microsecond

// handlerSpin is the longest time that a handler polls without finding work before it sleeps: it may share
// its core.
const handlerSpin = 100 * time.Microsecond

// notifyAll is the set of events that an engine requests: completions, and messages in its rings.
const notifyAll = transport.NotifyNext | transport.NotifyPlaced

// start registers the handler with a device. Its first event can occur only after a queue was made for it.
func (h *completionHandler) start(d transport.Device) (transport.HandlerID, error) {
	if h.timer == nil {
		h.timer = time.AfterFunc(time.Hour, func() {
			h.e.mu.Lock()
			defer h.e.mu.Unlock()
			h.armed = false
			if h.active() {
				h.runLocked()
			}
		})
		h.timer.Stop()
		h.running.Store(true)
	}
	class := transport.LowLatency
	if h.at.Bulk {
		class = transport.Bulk
	}
	on := h.countersAt(h.at)
	return d.SetCompletionHandler(transport.HandlerConfig{Core: on.Core, Class: class,
		Lock: &h.e.mu, Spin: h.spin, Counts: &on.HandlerCounts,
		Complete: func(transport.HandlerID, transport.CQ) {
			before := h.e.stats.Completions
			on.events++
			h.e.stats.Events++
			h.runLocked()
			on.completions += h.e.stats.Completions - before
		}})
}

// countersAt returns the counters of a place.
func (h *completionHandler) countersAt(p HandlerPlace) *servedPlace {
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	i := slices.IndexFunc(h.served, func(s *servedPlace) bool { return s.HandlerPlace == p })
	if i < 0 {
		i = len(h.served)
		h.served = append(h.served, &servedPlace{HandlerPlace: p})
	}
	return h.served[i]
}

// Handler returns where the endpoint's completion handler runs; false if it has none.
func (e *Engine) Handler() (HandlerPlace, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.completionHandler.at, e.completionHandler.active()
}

// MoveHandler moves the endpoint's completion queues to a handler at another place, or after an error back to
// where they were. No event is lost (N3). It does nothing to an endpoint without a handler.
func (e *Engine) MoveHandler(to HandlerPlace) error {
	h := &e.completionHandler
	h.moving.Lock()
	defer h.moving.Unlock()
	e.mu.Lock()
	from, active := h.at, h.active() && e.stopped == nil
	if active {
		h.at = to
	}
	e.mu.Unlock()
	if !active || from == to {
		return nil
	}
	for i, f := range e.fabrics {
		if err := h.moveQueue(f); err != nil {
			e.mu.Lock()
			h.at = from
			e.mu.Unlock()
			for _, moved := range e.fabrics[:i] {
				err = errors.Join(err, h.moveQueue(moved))
			}
			return err
		}
	}
	return nil
}

// moveQueue moves a queue to a new handler, and ends the old one.
func (h *completionHandler) moveQueue(f *fabric) error {
	id, err := h.start(f.Device)
	if err != nil {
		return err
	}
	h.e.mu.Lock()
	old := f.handler
	if err = f.Device.ModifyCQ(f.cq, id); err == nil {
		f.handler = id
		id = old
	}
	h.e.mu.Unlock()
	return errors.Join(err, f.Device.CloseHandler(id))
}

// active reports whether a handler makes the passes. It may be called without the lock.
func (h *completionHandler) active() bool { return h.running.Load() }

// runLocked makes the passes for an event.
func (h *completionHandler) runLocked() {
	h.e.mu.assertHeld()
	h.e.progress.poll()
	if err := h.e.progress.requestNotify(); err != nil {
		h.e.failLocked(err)
		return
	}
	h.e.progress.poll() // arrivals before the request raise no event
	h.armRetryLocked()
	h.passes.Add(1)
	h.e.waiting.wakeConditionsLocked()
}

// armRetryLocked does what is due without an event, now or soon.
func (h *completionHandler) armRetryLocked() {
	h.e.mu.assertHeld()
	h.e.coalescer.flush()
	h.e.progress.advanceDeferred()
	if len(h.e.progress.deferred) > 0 && !h.armed && h.e.stopped == nil {
		h.armed = true
		h.timer.Reset(retryDelay)
	}
}

// stop ends the handler: goroutines that wait make the passes again. The lock is not held.
func (h *completionHandler) stop() (err error) {
	h.moving.Lock()
	defer h.moving.Unlock()
	h.e.mu.Lock()
	if !h.active() {
		h.e.mu.Unlock()
		return nil
	}
	for _, f := range h.e.fabrics {
		err = errors.Join(err, f.Device.ModifyCQ(f.cq, 0))
	}
	h.timer.Stop()
	h.running.Store(false)
	h.e.mu.Unlock()
	if err != nil {
		return err
	}
	for _, f := range h.e.fabrics {
		err = errors.Join(err, f.Device.CloseHandler(f.handler))
		f.handler = 0
	}
	return err
}
