package engine

import (
	"errors"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// handler is the completion handler of a rank that has been given a core for it: a thread that makes the passes. Then a rank that computes
// still answers its peers, and who waits only watches its own request.
type handler struct {
	timer *time.Timer // makes a pass for what no event announces; nil: there is no handler
	armed bool        // the timer runs
}

// retryAfter is how soon a handler looks again at peers that could not do all that they had to: room in a send queue comes without an event.
const retryAfter = 200 * time.Microsecond

// handlerSpin is how long a handler makes passes that find nothing before it sleeps, at most: it may share its core.
const handlerSpin = 100 * time.Microsecond

// watched is what an engine asks to be told of: completions, and messages in its rings.
const watched = transport.NotifyNext | transport.NotifyPlaced

// startHandler registers the handler with a device; its first event can come only when a queue has been made for it.
func (e *Engine) startHandler(d transport.Device, core int, spin time.Duration) (transport.HandlerID, error) {
	h := &e.handler
	if h.timer == nil {
		h.timer = time.AfterFunc(time.Hour, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			h.armed = false
			if e.handled() {
				e.handle()
			}
		})
		h.timer.Stop()
	}
	return d.SetCompletionHandler(transport.HandlerConfig{Core: core, Class: transport.LowLatency, Lock: &e.mu, Spin: spin,
		Complete: func(transport.HandlerID, transport.CQ) { e.handle() }})
}

// handled tells whether a handler makes the passes.
func (e *Engine) handled() bool { return e.handler.timer != nil }

// handle makes the passes that an event asks for. The lock is held.
func (e *Engine) handle() {
	e.pass()
	for _, f := range e.fabrics {
		if err := f.cq.RequestNotify(watched); err != nil {
			e.fail(err)
			return
		}
	}
	e.pass() // what came before the request raises no event
	e.putOff()
	e.changes.Add(1)
	e.waiting.wakeAny()
}

// putOff does what is due without an event, now or soon.
func (e *Engine) putOff() {
	e.flush()
	e.retryPeers()
	if h := &e.handler; len(e.retry) > 0 && !h.armed && e.dead == nil {
		h.armed = true
		h.timer.Reset(retryAfter)
	}
}

// stopHandler gives the queues back to who waits. The lock is not held.
func (e *Engine) stopHandler() (err error) {
	e.mu.Lock()
	if !e.handled() {
		e.mu.Unlock()
		return nil
	}
	for _, f := range e.fabrics {
		err = errors.Join(err, f.device.ModifyCQ(f.cq, 0))
	}
	e.handler.timer.Stop()
	e.handler.timer = nil
	e.mu.Unlock()
	if err != nil {
		return err
	}
	for _, f := range e.fabrics {
		err = errors.Join(err, f.device.CloseHandler(f.handler))
		f.handler = 0
	}
	return err
}
