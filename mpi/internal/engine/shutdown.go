package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/transport"
)

// Drain returns when every send that was begun has left this rank: copied to its peer's ring, or fetched by
// its receiver. From its beginning, unexpected messages are dropped, and so is every message that arrives
// without a receive. The other ranks must go on making progress, as they do on their way into Finalize.
func (h *Hub) Drain() (err error) {
	for e := range h.each() {
		e.beginDrain()
	}
	for e := range h.each() {
		err = cmp.Or(err, e.endDrain())
	}
	return err
}

func (e *Engine) beginDrain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unexpected.discardAll()
	e.progress.draining = true
}

func (e *Engine) endDrain() error {
	e.waiting.waitUntil(0, nil, func() bool { return e.stopped != nil || e.progress.drained() })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.progress.draining = false
	return e.stopped
}

// ExternalBarrier runs meet, which returns when every rank of the job has called it or its context.Context
// ends, and makes passes meanwhile. If a rank fails, the context ends with the failure as its cause, unless
// withoutFailed says that the barrier does not wait for failed ranks.
func (h *Hub) ExternalBarrier(meet func(ctx context.Context) error, withoutFailed bool) error {
	e := h.first()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan struct{})
	var met error
	go func() {
		defer close(done)
		met = meet(ctx)
	}()
	var lost error
	e.driveUntil(done, func() bool {
		if lost = e.stopped; lost == nil && !withoutFailed && len(e.failures.peers) > 0 {
			lost = e.failures.peers[0].cause
		}
		return lost != nil
	})
	cancel(lost)
	<-done
	return met
}

// driveUntil makes progress, and sleeps, until done is closed or over holds.
func (e *Engine) driveUntil(done <-chan struct{}, over func() bool) {
	go func() {
		<-done
		e.Probes.Wake()
	}()
	e.waiting.waitUntil(0, nil, func() bool {
		select {
		case <-done:
			return true
		default:
			return over()
		}
	})
}

// closeTimeout bounds the wait for the peers' half of the close. It is short, since they are all in Finalize;
// a peer that is gone needs nothing more.
const closeTimeout = 10 * time.Second

// Shutdown closes every connection gracefully and releases everything. All ranks must have completed Drain.
func (h *Hub) Shutdown() error {
	for e := range h.each() {
		e.beginClose()
	}
	late := make(chan struct{})
	timer := time.AfterFunc(closeTimeout, func() {
		close(late)
		for e := range h.each() {
			e.Probes.Wake()
		}
	})
	defer timer.Stop()
	for e := range h.each() {
		e.waiting.waitUntil(0, nil, func() bool {
			select {
			case <-late:
				return true
			default:
				return e.stopped != nil || e.closedLocked()
			}
		})
	}
	return h.Destroy(ErrUnderWay)
}

func (e *Engine) beginClose() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
	for _, p := range e.peers {
		if p != nil && p.state == peerOpen {
			p.ch.QP().Close()
		}
	}
}

func (e *Engine) closedLocked() bool {
	e.mu.assertHeld()
	for _, p := range e.peers {
		if p != nil && p.state == peerOpen {
			if s := p.ch.QP().State(); s != transport.StateClosed && s != transport.StateError {
				return false
			}
		}
	}
	return true
}

// Fail stops the rank: connections are cut, and every current and future operation fails with cause.
func (h *Hub) Fail(cause error) {
	for e := range h.each() {
		e.fail(cause)
	}
}

// Stopped returns why the rank has stopped, or nil.
func (h *Hub) Stopped() error {
	h.failed.mu.Lock()
	defer h.failed.mu.Unlock()
	return h.failed.stopped
}

func (e *Engine) fail(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(cause)
}

func (e *Engine) failLocked(cause error) {
	e.mu.assertHeld()
	if e.stopped != nil {
		return
	}
	e.stopped = cause
	e.hub.failed.stop(e, cause)
	e.recorder.Note(recorder.Stopped, 0, 0, 0, 0)
	for _, p := range e.peers {
		if p != nil && p.state != peerFailed {
			e.failures.failPeer(p, cause)
		}
	}
	for m := range e.matching.Posted() {
		e.matching.RemovePosted(m)
		e.Requests.complete(m.Value, cause)
	}
	e.Choices.held = nil                   // these are among the requests under way
	for r := range e.Requests.underWay() { // operations of this rank with itself
		if r.kind == kindCollective {
			e.Collectives.failLocked(r.collective, cause)
			continue
		}
		e.Requests.complete(r, cause)
	}
	e.waiting.wakeConditionsLocked()
}

// Destroy fails all remaining operations with cause and releases the devices. When it returns, the rank's
// connects, timers, completion handlers and devices have ended. It does not wait for other goroutines of
// Engine.Go, that of queueLocked, and a Canceller's timer: they find the engine stopped, and end.
func (h *Hub) Destroy(cause error) (err error) {
	h.making.Lock()
	h.closed = true
	h.making.Unlock()
	h.Fail(cause)
	for e := range h.each() {
		e.waiting.cancelLife()
	}
	for e := range h.each() {
		e.connections.connecting.Wait()
		e.failures.logging.Wait()
	}
	for _, d := range h.devices {
		err = errors.Join(err, d.listener.Close())
	}
	h.failed.telling.Wait()
	h.heartbeat.timer.Stop()
	for e := range h.each() {
		err = errors.Join(err, e.stopTimers())
	}
	for e := range h.each() {
		e.mu.Lock()
		//lint:ignore SA2001 a timer's function that has the lock comes to its end
		e.mu.Unlock()
	}
	err = errors.Join(err, h.Memory.detachAll())
	for _, d := range h.devices {
		err = errors.Join(err, d.Device.Close())
	}
	h.queues.close() // nobody sleeps in them any more
	return err
}

// stopTimers stops the timers and the completion handler of an endpoint.
func (e *Engine) stopTimers() error {
	e.coalescer.timer.Stop()
	e.idleShrinker.timer.Stop()
	e.Windows.passive.timer.Stop()
	return e.completionHandler.stop()
}

// abandon ends an engine that could not be opened. Its completion queues stay with the devices.
func (e *Engine) abandon() error {
	e.waiting.cancelLife()
	return e.stopTimers()
}
