package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Scope ends operations with a context: what is bound to it is given up when the context ends. A nil Scope never ends.
//
// An operation that is given up ends as soon as its buffer is quiet: at once where it can be withdrawn; a send that was announced when its
// receiver has let go of it, which it is asked to do; a receive whose bytes are on their way when they are there, and then it has not
// failed. A peer that does not let go in time is given up itself.
type Scope struct {
	e     *Engine
	ctx   context.Context
	ended atomic.Pointer[error]
}

// letGoWithin bounds the time that a peer has to let go of a buffer. It is no measure of anything: a peer that lives answers in its next
// pass.
const letGoWithin = 10 * time.Second

// NewScope makes a scope that ends with ctx.
func (e *Engine) NewScope(ctx context.Context) *Scope {
	s := &Scope{e: e, ctx: ctx}
	context.AfterFunc(ctx, s.end)
	return s
}

// Err is why the scope has ended; nil while it has not.
func (s *Scope) Err() error {
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

// Bind has the end of a scope give up an operation that was just begun.
func (e *Engine) Bind(h Request, s *Scope) {
	if s == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.requests.find(h)
	if r == nil || r.completed() {
		return
	}
	r.scope = s
	if s.ended.Load() != nil {
		s.giveUp()
	}
}

// end gives up all that is bound to the scope, and wakes the probes.
func (s *Scope) end() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	err := reason(s.ctx)
	s.ended.Store(&err)
	s.giveUp()
	s.e.waiting.wakeAny()
}

func (s *Scope) giveUp() {
	left := false
	for r := range s.e.requests.underWay() {
		if r.scope == s && r.cause == nil {
			s.e.giveUp(r, *s.ended.Load())
			left = left || !r.completed()
		}
	}
	if left {
		time.AfterFunc(letGoWithin, s.cut)
	}
}

// cut gives up the peers that have not let go.
func (s *Scope) cut() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for r := range s.e.requests.underWay() {
		if p := r.peer; r.scope == s && p != nil {
			s.e.failPeer(p, fmt.Errorf("it did not let go of a buffer within %v", letGoWithin))
		}
	}
}

func (e *Engine) giveUp(r *request, cause error) {
	switch {
	case e.withdraw(r):
		e.complete(r, cause)
	case r.filed != nil: // a Message of this rank holds it
		a := r.filed
		a.self = nil
		for _, b := range r.vec {
			if len(b) > 0 {
				e.keep(a, b)
			}
		}
		e.complete(r, cause)
	case r.kind == kindSend:
		r.cause, r.minded = cause, true
		if r.number != 0 {
			e.takeBack(r)
		}
	}
}

// numbers counts the announcements of a peer, in each direction. The ring keeps their order, so both ends give a message the same number.
type numbers struct{ to, from uint64 }

// announcing gives the next announcement to the peer its number.
func (p *peer) announcing() uint64 {
	p.numbers.to++
	return p.numbers.to
}

// announced gives the announcement that has come from the peer its number.
func (p *peer) announced() uint64 {
	p.numbers.from++
	return p.numbers.from
}

// controlContext is the context of what engines tell one another: no communicator has it.
const controlContext = math.MaxUint32

// takeBack asks the peer to let go of an announced message: it answers with FIN, as if it had read it.
func (e *Engine) takeBack(r *request) {
	c := e.requests.get()
	c.contiguous(binary.LittleEndian.AppendUint64(nil, r.number))
	e.startSend(c, envelope{Context: controlContext}, r.rank, false)
	if c.completed() {
		e.collect(c.handle(), c)
		return
	}
	c.orphan, c.minded = true, true
}

// takenBack lets go of a message that its sender gives up. One that a receive has matched meanwhile ends by itself.
func (e *Engine) takenBack(p *peer, body []byte) error {
	if len(body) != 8 {
		return fmt.Errorf("%w: a message is taken back with %d bytes", transport.ErrProtocol, len(body))
	}
	number := binary.LittleEndian.Uint64(body)
	for m := range e.table.Unexpected() {
		if a := m.Value; a.peer == p && a.number == number {
			e.table.Take(m)
			_, err := p.fabric.fetcher.Start(p.ch, a.parts[0].source, nil, 0)
			e.discard(a)
			return err
		}
	}
	for _, a := range e.matched {
		if a.peer == p && a.number == number && !a.gone {
			a.gone = true
			_, err := p.fabric.fetcher.Start(p.ch, a.parts[0].source, nil, 0)
			return err
		}
	}
	return nil
}
