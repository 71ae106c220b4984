package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"weak"
)

// Canceller ends operations of an endpoint with a context.Context: when the context ends, or End is called,
// the operations bound to the Canceller are cancelled. A nil Canceller never ends. The context does not keep
// a Canceller alive: one that no handle of the program and no operation refers to is collected.
//
// An operation that is cancelled in this way completes when its buffer is free. That is immediately if
// nothing has left this rank; for an announced send, when the receiver has answered WITHDRAW; for a receive
// whose data is arriving, when it has arrived. An operation that was matched before succeeds. A peer that
// does not answer within cancelTimeout, or of whose message nothing moves for so long, counts as failed.
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

// At returns a canceller of the same context for the operations of endpoint e: a canceller serves a single
// endpoint.
func (s *Canceller) At(e *Engine) *Canceller {
	if s == nil || s.e == e {
		return s
	}
	return e.Cancels.NewCanceller(s.ctx)
}

// Another returns another canceller of the same context, for operations of endpoint e. s may be nil.
func (s *Canceller) Another(e *Engine) *Canceller {
	ctx := context.Background()
	if s != nil {
		ctx = s.ctx
	}
	return e.Cancels.NewCanceller(ctx)
}

// Done returns a Go channel that is closed when the canceller's context ends; nil if it never does.
func (s *Canceller) Done() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.ctx.Done()
}

// Err returns why the canceller has ended, or nil while it has not.
func (s *Canceller) Err() error {
	if s == nil {
		return nil
	}
	if err := s.ended.Load(); err != nil {
		return *err
	}
	if s.ctx.Err() == nil {
		return nil
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

// Bind makes the end of a canceller cancel an operation that was just begun.
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
		s.cancelBoundLocked()
	}
}

func (s *Canceller) onDone() { s.End(reason(s.ctx)) }

// End ends the canceller, with this error if it has not ended before: it cancels all operations bound to the
// canceller, and wakes the goroutines that wait for a condition.
func (s *Canceller) End(err error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if !s.ended.CompareAndSwap(nil, &err) {
		return
	}
	s.cancelBoundLocked()
	s.e.waiting.wakeConditionsLocked()
}

func (s *Canceller) cancelBoundLocked() {
	s.e.mu.assertHeld()
	var left []cancelled
	for r := range s.e.Requests.underWay() {
		if r.canceller == s && r.cause == nil {
			s.e.Cancels.cancelLocked(r, *s.ended.Load())
			if !r.completed() {
				left = append(left, cancelled{r.handle(), r.movedLocked()})
			}
		}
	}
	s.watchLocked(left)
}

// cancelled is an operation that was cancelled and is not complete.
type cancelled struct {
	request Request
	moved   int // result of movedLocked when it was last looked at
}

// watchLocked looks at operations again after cancelTimeout.
func (s *Canceller) watchLocked(list []cancelled) {
	s.e.mu.assertHeld()
	if len(list) > 0 && s.e.stopped == nil {
		time.AfterFunc(cancelTimeout, func() { s.failUnresponsive(list) })
	}
}

// failUnresponsive fails the peers of those operations that are still not complete. They have more time while
// bytes of their messages move.
func (s *Canceller) failUnresponsive(list []cancelled) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	var left []cancelled
	for _, c := range list {
		r := s.e.Requests.find(c.request)
		if r == nil || r.completed() {
			continue
		}
		moved := r.movedLocked()
		switch p := r.peer; {
		case r.kind == kindRecv && p == nil || moved != c.moved:
			left = append(left, cancelled{c.request, moved})
		case p != nil:
			s.e.failures.failPeer(p, fmt.Errorf("it did not answer the cancellation of a message within "+
				"%v", cancelTimeout))
		}
	}
	s.watchLocked(left)
}

// movedLocked returns how many bytes of its announced message a receive has fetched, or a send has written of
// the buffers that are not done.
func (r *request) movedLocked() int {
	switch {
	case r.peer == nil:
	case r.kind == kindRecv:
		return r.received - r.peer.fabric.receiver.Missing(r.token())
	case r.kind == kindSend:
		return r.peer.fabric.sender.Written(r.token())
	}
	return 0
}
