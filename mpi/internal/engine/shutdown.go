package engine

import (
	"context"
	"errors"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Quiesce returns when every send that was begun has left this rank: copied to its peer's ring, or fetched by its receiver.
// The other ranks must go on making passes, as they do on their way into Finalize.
func (e *Engine) Quiesce() error {
	e.waitUntil(0, nil, func() bool { return e.dead != nil || e.quiet() })
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dead
}

func (e *Engine) quiet() bool {
	for _, p := range e.peers {
		if p == nil {
			continue
		}
		if p.waiting() || p.state == peerOpen && p.fabric.announcer.Outstanding(p.ch) > 0 {
			return false
		}
		if p.state == peerOpen && p.ch.Paused() { // what has been sent may wait for what follows it
			e.later(p)
			return false
		}
	}
	return true
}

// DriveUntil makes passes, and sleeps, until done is closed: for a wait that is not of the engine, while peers still need it.
func (e *Engine) DriveUntil(done <-chan struct{}) {
	e.driveUntil(done, func() bool { return e.dead != nil })
}

// Meet runs meet, which returns when every rank of the job has come to it or its context ends, and makes passes meanwhile. A rank that has
// failed never comes: then the context ends with that as its cause.
func (e *Engine) Meet(meet func(ctx context.Context) error) error {
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
		if lost = e.dead; lost == nil && len(e.failed) > 0 {
			lost = e.failed[0].cause
		}
		return lost != nil
	})
	cancel(lost)
	<-done
	return met
}

// driveUntil makes passes, and sleeps, until done is closed or over holds.
func (e *Engine) driveUntil(done <-chan struct{}, over func() bool) {
	go func() {
		<-done
		e.Nudge()
	}()
	e.waitUntil(0, nil, func() bool {
		select {
		case <-done:
			return true
		default:
			return over()
		}
	})
}

// closeWithin bounds the wait for the peers' half of the close. They are all in Finalize, so it is short; who is not
// there any more has no claim on us.
const closeWithin = 10 * time.Second

// Shutdown closes every connection in order and releases everything. All ranks must have come to it.
func (e *Engine) Shutdown() error {
	e.mu.Lock()
	e.closing = true
	for _, p := range e.peers {
		if p != nil && p.state == peerOpen {
			p.ch.QP().Close()
		}
	}
	e.mu.Unlock()
	late := make(chan struct{})
	timer := time.AfterFunc(closeWithin, func() { close(late); e.Nudge() })
	defer timer.Stop()
	e.waitUntil(0, nil, func() bool {
		select {
		case <-late:
			return true
		default:
			return e.dead != nil || e.closed()
		}
	})
	return e.Destroy(ErrFinalized)
}

func (e *Engine) closed() bool {
	for _, p := range e.peers {
		if p != nil && p.state == peerOpen {
			if s := p.ch.QP().State(); s != transport.StateClosed && s != transport.StateError {
				return false
			}
		}
	}
	return true
}

// Fail ends the engine's work: connections are cut, and every operation, present and future, fails with cause.
func (e *Engine) Fail(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail(cause)
}

func (e *Engine) fail(cause error) {
	if e.dead != nil {
		return
	}
	e.dead = cause
	for _, p := range e.peers {
		if p != nil && p.state != peerFailed {
			e.failPeer(p, cause)
		}
	}
	for m := range e.table.Posted() {
		e.table.Withdraw(m)
		e.complete(m.Value, cause)
	}
	for r := range e.requests.underWay() { // of this rank with itself
		e.complete(r, cause)
	}
	e.waiting.wakeAny()
}

// Destroy fails what is left with cause and releases the device. Nothing of the engine runs when it returns.
func (e *Engine) Destroy(cause error) error {
	e.Fail(cause)
	e.waiting.end()
	e.dialing.Wait()
	var err error
	for _, f := range e.fabrics {
		err = errors.Join(err, f.endpoint.Close())
	}
	e.held.timer.Stop()
	e.reclaim.timer.Stop()
	e.heartbeat.timer.Stop()
	err = errors.Join(err, e.stopHandler())
	e.mu.Lock()
	defer e.mu.Unlock()
	err = errors.Join(err, e.leaveAllocated())
	for _, f := range e.fabrics {
		err = errors.Join(err, f.device.Close())
	}
	return err
}
