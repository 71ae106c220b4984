package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Persistent is a send, a receive or a collective that is set up once and started repeatedly (MPI 4.1, 3.9,
// 6.13). It is inactive at first. Start makes it active. It is inactive again once a wait or test has
// completed the request that Start returned.
type Persistent struct {
	c         *Comm
	receive   bool
	sync      bool // a synchronous send
	buf       buffer
	memory    *engine.Memory // of buf, if it comes from Alloc
	peer, tag int

	collective *engine.Collective // nil for a send or a receive
	memory2    *engine.Memory     // its other buffer, if that comes from Alloc
	memoryUse  check.Operation    // of the collective, in checking mode

	mu    *engine.Lock
	h     engine.Request // of the last Start
	freed bool
}

// SendInit sets up a send of buf to rank dst (MPI 4.1, 3.9). It sends nothing before Start. buf may be
// changed while the send is inactive.
func SendInit[T any](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	return sendInit(c, "SendInit", buf, dst, tag, false)
}

// SsendInit is SendInit of a synchronous send: the request of a Start is complete only when the receiver has
// begun to receive the message (MPI 4.1, 3.9).
func SsendInit[T any](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	return sendInit(c, "SsendInit", buf, dst, tag, true)
}

func sendInit[T any](c *Comm, op string, buf []T, dst, tag int, sync bool) (*Persistent, error) {
	b, err := bufferOf(c, buf)
	if err == nil {
		err = c.checkSend(dst, tag)
	}
	if err != nil {
		return nil, c.fail(op, dst, tag, err)
	}
	return &Persistent{mu: c.e.NewLock(), c: c, sync: sync, buf: b, memory: c.job.hub.Memory.Pin(b.bytes),
		peer: dst, tag: tag}, nil
}

// RecvInit sets up a receive into buf from rank src, or AnySource, with tag, or AnyTag (MPI 4.1, 3.9). It
// receives nothing before Start. buf belongs to weft while the receive is active.
func RecvInit[T any](c *Comm, buf []T, src, tag int) (*Persistent, error) {
	b, err := bufferOf(c, buf)
	if err == nil {
		err = c.checkRecv(src, tag)
	}
	if err != nil {
		return nil, c.fail("RecvInit", src, tag, err)
	}
	return &Persistent{mu: c.e.NewLock(), c: c, receive: true, buf: b, memory: c.job.hub.Memory.Pin(b.bytes),
		peer: src,
		tag:  tag}, nil
}

// Start begins the operation, as Isend or Irecv would, and returns its request. Until that request is used up
// (see Request), another Start gives ErrRequest.
func (p *Persistent) Start() (Request, error) {
	if p == nil || p.c == nil {
		return Request{}, asError("Start", errNotSetUp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.startLocked()
	if err != nil {
		return Request{}, p.c.fail("Start", p.peer, p.tag, err)
	}
	return r, nil
}

// Startall starts all of ps, in order, and sets rs[i] to the request of ps[i] (MPI 4.1, 3.9). rs must be at
// least as long as ps. If one of them is active or freed, none is started. If one fails for another reason,
// those before it have been started, and rs is zero from its index on.
func Startall(ps []*Persistent, rs []Request) error {
	if len(rs) < len(ps) {
		return asError("Startall", fmt.Errorf("%w: room for only %d requests of %d operations", ErrCount,
			len(rs), len(ps)))
	}
	for i, p := range ps {
		if p == nil || p.c == nil {
			return asError("Startall", fmt.Errorf("number %d: %w", i, errNotSetUp))
		}
		if err := p.startable(); err != nil {
			return p.c.fail("Startall", p.peer, p.tag, fmt.Errorf("number %d: %w", i, err))
		}
	}
	clear(rs[:len(ps)])
	for i, p := range ps {
		p.mu.Lock()
		r, err := p.startLocked()
		p.mu.Unlock()
		if err != nil {
			return p.c.fail("Startall", p.peer, p.tag, fmt.Errorf("number %d: %w", i, err))
		}
		rs[i] = r
	}
	return nil
}

// Free ends the use of p; it cannot be started any more. If p is active, its request completes normally and
// can still be waited for.
func (p *Persistent) Free() error {
	if p == nil || p.c == nil {
		return asError("Free", errNotSetUp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed {
		return p.c.fail("Free", p.peer, p.tag, errFreed)
	}
	p.c.job.hub.Memory.Unpin(p.memory)
	p.c.job.hub.Memory.Unpin(p.memory2)
	p.freed, p.buf, p.memory, p.memory2 = true, buffer{}, nil, nil
	return nil
}

var (
	errNotSetUp = fmt.Errorf("%w: a Persistent comes from SendInit, RecvInit and the like", ErrRequest)
	errFreed    = fmt.Errorf("%w: it has been freed", ErrRequest)
	errActive   = fmt.Errorf("%w: it is active: wait for the request of its last Start first", ErrRequest)
)

func (p *Persistent) startable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readyLocked()
}

// readyLocked returns an error if p cannot be started now.
func (p *Persistent) readyLocked() error {
	switch {
	case p.freed:
		return errFreed
	case p.c.e.Requests.Live(p.h):
		return errActive
	}
	return p.c.checkCall()
}

func (p *Persistent) startLocked() (r Request, err error) {
	if err := p.readyLocked(); err != nil {
		return Request{}, err
	}
	switch {
	case p.collective != nil:
		r.c = p.c
		if r.h, err = p.c.e.Collectives.Start(p.collective); err == nil {
			r = p.c.tracked(r.h, p.memoryUse)
		}
	case p.receive:
		r, err = p.c.irecv(&p.buf, p.peer, p.tag)
	default:
		r, err = p.c.isend(&p.buf, p.peer, p.tag, p.sync)
	}
	p.h = r.h
	return r, err
}
