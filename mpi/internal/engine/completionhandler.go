package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// completionHandler is the completion handler of an endpoint whose rank has been given cores for that: a
// thread that makes the passes. Then a rank that computes still answers its peers, and who waits only watches
// its own request.
type completionHandler struct {
	e      *Engine
	timer  *time.Timer   // makes progress once for what no event announces; nil: there is no handler
	armed  bool          // the timer runs
	passes atomic.Uint32 // changes whenever the handler may have completed something
	spin   time.Duration
	at     HandlerPlace
	counts transport.HandlerCounts
	moving orderedMutex // held while the queues go to another handler; before the lock of the engine
}

// HandlerPlace is where the completion handler of an endpoint runs, and which others it yields to.
type HandlerPlace struct {
	Core int
	// it makes way for the handlers of the same core that are not bulk, though not for ever (N7)
	Bulk bool
}

// retryDelay is how soon a handler looks again at peers that could not do all that they had to: room in a
// send queue comes without an event.
const retryDelay = 200 * time.Microsecond

// handlerSpin is how long a handler makes progress that find nothing before it sleeps, at most: it may share
// its core.
const handlerSpin = 100 * time.Microsecond

// notifyAll is what an engine asks to be told of: completions, and messages in its rings.
const notifyAll = transport.NotifyNext | transport.NotifyPlaced

// start registers the handler with a device; its first event can come only when a queue has been made
// for it.
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
	}
	class := transport.LowLatency
	if h.at.Bulk {
		class = transport.Bulk
	}
	return d.SetCompletionHandler(transport.HandlerConfig{Core: h.at.Core, Class: class,
		Lock: &h.e.mu, Spin: h.spin, Counts: &h.counts,
		Complete: func(transport.HandlerID, transport.CQ) {
			h.e.stats.Events++
			h.runLocked()
		}})
}

// Handler returns where the endpoint's completion handler runs; false if it has none.
func (e *Engine) Handler() (HandlerPlace, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.completionHandler.at, e.completionHandler.active()
}

// MoveHandler gives the endpoint's queues to a completion handler at another place. No event is lost (N3). It
// does nothing to an endpoint without a handler.
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
	for _, f := range e.fabrics {
		if err := h.moveQueue(f); err != nil {
			e.mu.Lock()
			h.at = from
			e.mu.Unlock()
			return err
		}
	}
	return nil
}

// moveQueue gives a queue to a new handler, and ends the one that had it.
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

// active tells whether a handler makes progress.
func (h *completionHandler) active() bool { return h.timer != nil }

// runLocked makes progress that an event asks for.
func (h *completionHandler) runLocked() {
	h.e.mu.assertHeld()
	h.e.progress.poll()
	if err := h.e.progress.requestNotify(); err != nil {
		h.e.failLocked(err)
		return
	}
	h.e.progress.poll() // what came before the request raises no event
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

// stop gives the queues back to who waits. The lock is not held.
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
	h.timer = nil
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
