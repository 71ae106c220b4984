package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Wildcards of a receive.
const (
	AnySource = match.AnySource
	AnyTag    = match.AnyTag
)

// Recv receives into buf and returns when the message is there. elem is the size of an element, for the status.
func (e *Engine) Recv(context uint32, buf []byte, src, tag, elem int) (Status, error) {
	e.mu.Lock()
	if e.dead != nil {
		defer e.mu.Unlock()
		return Status{}, e.dead
	}
	r := e.startRecv(context, buf, src, tag, elem)
	e.mu.Unlock()
	return e.wait(r)
}

// Irecv begins a receive. buf is weft's until the request is complete.
func (e *Engine) Irecv(context uint32, buf []byte, src, tag, elem int) (Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return Request{}, e.dead
	}
	return e.startRecv(context, buf, src, tag, elem).handle(), nil
}

func (e *Engine) startRecv(context uint32, buf []byte, src, tag, elem int) *request {
	r := e.requests.get()
	r.kind, r.rank, r.buf = kindRecv, src, buf
	r.status.Elem = elem
	r.posted.Context, r.posted.Source, r.posted.Tag = context, int32(src), int32(tag)
	if m := e.table.Post(&r.posted); m != nil {
		e.take(r, m.Value)
		return r
	}
	if src >= 0 && src != e.rank {
		if p := e.peers[src]; p != nil && p.state == peerFailed {
			e.table.Withdraw(&r.posted)
			e.complete(r, p.cause)
		}
	}
	return r
}

// take gives an arrival that had been filed to the receive that matched it.
func (e *Engine) take(r *request, a *arrival) {
	source, tag := int(a.match.Source), a.match.Tag
	switch {
	case a.self != nil:
		e.deliver(r, source, tag, a.self.buf, a.bytes)
		e.complete(a.self, nil)
	case a.peer != nil:
		e.fetch(r, a.peer, a.rts)
	default:
		e.deliver(r, source, tag, a.payload, a.bytes)
	}
	e.arrivals.put(a)
}

// deliver copies a whole message into its receive and completes it.
func (e *Engine) deliver(r *request, source int, tag int32, payload []byte, bytes int) {
	n := copy(r.buf, payload)
	e.received(r, source, tag, n, bytes)
}

// received completes a receive of which n of the message's bytes are in the buffer.
func (e *Engine) received(r *request, source int, tag int32, n, bytes int) {
	r.status.Source, r.status.Tag, r.status.Bytes = source, int(tag), n
	if n < bytes {
		e.complete(r, fmt.Errorf("%w: %d bytes from rank %d with tag %d, room for %d", ErrTruncate, bytes, source, tag, n))
		return
	}
	e.complete(r, nil)
}

// drain takes every message that has come on a peer's channel.
func (e *Engine) drain(p *peer) {
	if p.state != peerOpen {
		return
	}
	for {
		kind, body, ok, err := p.ch.Next()
		if err == nil && !ok {
			break
		}
		if err == nil {
			switch kind {
			case channel.Eager:
				err = e.arrivedEager(p, body)
			case channel.RTS:
				err = e.arrivedRTS(p, body)
			default:
				err = fmt.Errorf("%w: message kind %d", transport.ErrProtocol, kind)
			}
		}
		if err != nil {
			e.failPeer(p, err)
			return
		}
		if p.state != peerOpen {
			return
		}
		p.ch.Release()
	}
	e.kick(p)
}

func (e *Engine) arrivedEager(p *peer, body []byte) error {
	env, payload, err := eager.Parse(body)
	if err != nil {
		return err
	}
	if env.Context == controlContext {
		return e.takenBack(p, payload)
	}
	if m := e.table.Arrive(env.Context, int32(p.rank), env.Tag); m != nil {
		e.deliver(m.Value, p.rank, env.Tag, payload, len(payload))
		return nil
	}
	a := e.arrivals.get()
	a.bytes = len(payload)
	a.payload = e.arrivals.copyOf(payload)
	e.file(a, env, p.rank)
	return nil
}

func (e *Engine) arrivedRTS(p *peer, body []byte) error {
	rts, err := rendezvous.ParseRTS(body)
	if err != nil {
		return err
	}
	number := p.announced()
	if m := e.table.Arrive(rts.Context, int32(p.rank), rts.Tag); m != nil {
		e.fetch(m.Value, p, rts)
		return nil
	}
	a := e.arrivals.get()
	a.bytes = int(rts.Length)
	a.rts, a.peer, a.number = rts, p, number
	e.file(a, envelope{Context: rts.Context, Tag: rts.Tag}, p.rank)
	return nil
}

// file keeps an arrival until a receive matches it. A probe that waits looks again.
func (e *Engine) file(a *arrival, env envelope, source int) {
	e.stats.Unexpected++
	a.match.Context, a.match.Source, a.match.Tag = env.Context, int32(source), env.Tag
	e.table.File(&a.match)
	e.waiting.wakeAny()
}

// fetch reads an announced message into the receive that matched it.
func (e *Engine) fetch(r *request, p *peer, rts rendezvous.RTS) {
	r.status.Source, r.status.Tag, r.status.Bytes = p.rank, int(rts.Tag), int(rts.Length)
	if p.state != peerOpen {
		e.complete(r, p.cause)
		return
	}
	r.peer = p
	e.stats.Fetched++
	done, err := e.fetcher.Start(p.ch, rts, r.buf, r.token())
	if done {
		e.received(r, p.rank, rts.Tag, 0, int(rts.Length))
	}
	if err != nil {
		e.failPeer(p, err)
		if r.peer != nil { // the fetcher had not taken it
			e.complete(r, p.cause)
		}
	}
}

// fetched completes a receive whose bytes have all been read.
func (e *Engine) fetched(token uint64) {
	if r := e.requests.byToken(token); r != nil {
		bytes := r.status.Bytes
		e.received(r, r.status.Source, int32(r.status.Tag), min(bytes, len(r.buf)), bytes)
	}
}
