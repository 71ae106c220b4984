package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// completionHandler is the completion handler of a rank that has been given a core for it: a thread that
// makes the passes. Then a rank that computes still answers its peers, and who waits only watches its own
// request.
type completionHandler struct {
	e      *Engine
	timer  *time.Timer   // makes progress once for what no event announces; nil: there is no handler
	armed  bool          // the timer runs
	passes atomic.Uint32 // changes whenever the handler may have completed something
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
func (h *completionHandler) start(d transport.Device, core int,
	spin time.Duration) (transport.HandlerID, error) {
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
	return d.SetCompletionHandler(transport.HandlerConfig{Core: core, Class: transport.LowLatency,
		Lock: &h.e.mu, Spin: spin,
		Complete: func(transport.HandlerID, transport.CQ) { h.runLocked() }})
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
	h.e.waiters.wakeProbesLocked()
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
	h.e.mu.Lock()
	if !h.active() {
		h.e.mu.Unlock()
		return nil
	}
	for _, f := range h.e.fabrics {
		err = errors.Join(err, f.device.ModifyCQ(f.cq, 0))
	}
	h.timer.Stop()
	h.timer = nil
	h.e.mu.Unlock()
	if err != nil {
		return err
	}
	for _, f := range h.e.fabrics {
		err = errors.Join(err, f.device.CloseHandler(f.handler))
		f.handler = 0
	}
	return err
}
