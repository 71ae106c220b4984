package engine

import (
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// Send sends buf to a world rank and returns when buf is the caller's again: copied (eager), or taken by the receiver.
func (e *Engine) Send(context uint32, buf []byte, dst, tag int) error {
	env := envelope{Context: context, Tag: int32(tag)}
	e.mu.Lock()
	if e.dead != nil {
		defer e.mu.Unlock()
		return e.dead
	}
	if dst != e.rank {
		p := e.peer(dst)
		// The common case needs no request: nothing waits before us, and the message fits.
		if p.state == peerOpen && !p.waiting() && len(buf) <= eager.Max(p.ch) {
			sent, err := eager.Send(p.ch, env, buf, false)
			if err != nil {
				e.failPeer(p, err)
				e.mu.Unlock()
				return p.cause
			}
			if sent {
				e.stats.EagerSent++
				e.mu.Unlock()
				return nil
			}
		}
	}
	r := e.startSend(env, buf, dst, false, false)
	e.mu.Unlock()
	_, err := e.wait(r)
	return err
}

// Isend begins a send. buf must stay as it is until the request is complete.
func (e *Engine) Isend(context uint32, buf []byte, dst, tag int) (Request, error) {
	env := envelope{Context: context, Tag: int32(tag)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return Request{}, e.dead
	}
	return e.startSend(env, buf, dst, e.held.more(), false).handle(), nil
}

// startSend begins a send under the lock. With more the bytes may be held back for a while, to travel with others.
func (e *Engine) startSend(env envelope, buf []byte, dst int, more, sync bool) *request {
	r := e.requests.get()
	r.kind, r.rank, r.env, r.buf, r.sync = kindSend, dst, env, buf, sync
	if dst == e.rank {
		e.sendSelf(r)
		return r
	}
	p := e.peer(dst)
	switch p.state {
	case peerFailed:
		e.complete(r, p.cause)
		return r
	case peerClosed:
		e.complete(r, ErrFinalized)
		return r
	case peerIdle:
		e.connect(p)
	}
	r.peer = p
	if p.state != peerOpen || p.waiting() {
		p.enqueue(r)
		return r
	}
	if started, err := e.trySend(p, r, more); err != nil {
		p.enqueue(r) // so that it fails with all the others of this peer
		e.failPeer(p, err)
	} else if !started {
		p.enqueue(r)
	}
	return r
}

// trySend hands a send to its protocol; false when there is no room now. It never blocks.
func (e *Engine) trySend(p *peer, r *request, more bool) (bool, error) {
	if !r.sync && len(r.buf) <= eager.Max(p.ch) {
		sent, err := eager.Send(p.ch, r.env, r.buf, more)
		if sent {
			e.stats.EagerSent++
			e.complete(r, nil)
		}
		return sent, err
	}
	ok, err := e.announcer.Announce(p.ch, r.env, r.buf, r.token(), more)
	if ok {
		e.stats.Announced++
		r.number = p.announcing()
	}
	return ok, err
}

// advance starts the sends that waited, in order, as far as there is room.
func (e *Engine) advance(p *peer) {
	for p.state == peerOpen && p.waiting() {
		r := p.queue[p.head]
		started, err := e.trySend(p, r, p.head+1 < len(p.queue))
		if err != nil {
			e.failPeer(p, err)
			return
		}
		if !started {
			break
		}
		p.dequeue()
	}
	if p.state == peerOpen {
		p.ch.QP().Flush()
	}
}

// sendSelf delivers a message of this rank to itself. What finds no receive is copied if it is small; else it stays with
// the sender, who waits for the receive as he would with any other rank.
func (e *Engine) sendSelf(r *request) {
	if m := e.table.Arrive(r.env.Context, int32(e.rank), r.env.Tag); m != nil {
		e.deliver(m.Value, e.rank, r.env.Tag, r.buf, len(r.buf))
		e.complete(r, nil)
		return
	}
	a := e.arrivals.get()
	a.bytes = len(r.buf)
	if !r.sync && len(r.buf) <= selfCopied {
		a.payload = e.arrivals.copyOf(r.buf)
	} else {
		a.self, r.filed = r, a
	}
	e.file(a, r.env, e.rank)
	if a.self == nil {
		e.complete(r, nil)
	}
}

// selfCopied is the size of a message to oneself up to which it is copied when there is no receive for it yet.
const selfCopied = 600

var _ transport.Acceptor = (*acceptor)(nil)
