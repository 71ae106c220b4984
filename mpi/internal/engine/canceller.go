package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"weak"
)

// Canceller ends operations of an endpoint with a context: what is bound to it is cancelled when the context
// ends. A nil Canceller never ends. The context does not keep it: one that is no longer reachable, from a
// handle of the program or an operation under way, leaves the context.
//
// An operation that is cancelled so ends as soon as its buffer is free: at once where nothing of it has
// left this rank; a send that was announced when its receiver has answered WITHDRAW; a receive whose bytes
// are on their way when they are there. What was matched before has not failed. A peer that does not answer
// in time is given up itself.
type Canceller struct {
	e     *Engine
	ctx   context.Context
	ended atomic.Pointer[error]
}

// cancelTimeout bounds the time that a peer has to release a buffer. The exact value does not matter: a
// peer that lives answers in its next pass.
const cancelTimeout = 10 * time.Second

// NewCanceller makes a Canceller that cancels when ctx ends.
func (n *Cancels) NewCanceller(ctx context.Context) *Canceller {
	e := n.e
	s := &Canceller{e: e, ctx: ctx}
	p := weak.Make(s)
	stop := context.AfterFunc(ctx, func() {
		if s := p.Value(); s != nil {
			s.onDone()
		}
	})
	runtime.AddCleanup(s, func(stop func() bool) { stop() }, stop)
	return s
}

// At is a canceller of the same context for operations of an endpoint: one cancels at its own alone.
func (s *Canceller) At(e *Engine) *Canceller {
	if s == nil || s.e == e {
		return s
	}
	return e.Cancels.NewCanceller(s.ctx)
}

// Err is why the canceller has ended; nil while it has not.
func (s *Canceller) Err() error {
	if s == nil || s.ctx.Err() == nil {
		return nil
	}
	if err := s.ended.Load(); err != nil {
		return *err
	}
	return reason(s.ctx)
}

func reason(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return fmt.Errorf("given up: %w", err)
	}
	return fmt.Errorf("given up: %w: %w", err, cause)
}

// Bind has the end of a canceller give up an operation that was just begun.
func (n *Cancels) Bind(h Request, s *Canceller) {
	e := n.e
	if s == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.Requests.find(h)
	if r == nil || r.completed() {
		return
	}
	r.canceller, r.observed = s, true
	if s.ended.Load() != nil {
		s.cancelBound()
	}
}

// onDone cancels all that is bound to the canceller, and wakes the probes.
func (s *Canceller) onDone() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	err := reason(s.ctx)
	s.ended.Store(&err)
	s.cancelBound()
	s.e.waiting.wakeConditionsLocked()
}

func (s *Canceller) cancelBound() {
	left := false
	for r := range s.e.Requests.underWay() {
		if r.canceller == s && r.cause == nil {
			s.e.Cancels.cancelLocked(r, *s.ended.Load())
			left = left || !r.completed()
		}
	}
	if left {
		time.AfterFunc(cancelTimeout, s.failUnresponsive)
	}
}

// failUnresponsive fails the peers that have not released their buffers.
func (s *Canceller) failUnresponsive() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for r := range s.e.Requests.underWay() {
		if p := r.peer; r.canceller == s && p != nil {
			s.e.failures.failPeer(p, fmt.Errorf("it did not answer the cancellation of a message within "+
				"%v", cancelTimeout))
		}
	}
}
