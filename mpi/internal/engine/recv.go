package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/words"
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
	if err := e.dead; err != nil {
		e.mu.Unlock()
		return Status{}, err
	}
	r := e.requests.get()
	r.contiguous(buf)
	e.startRecv(r, context, src, tag, elem)
	e.mu.Unlock()
	return e.wait(r)
}

// Irecv begins a receive. buf is weft's until the request is complete.
func (e *Engine) Irecv(context uint32, buf []byte, src, tag, elem int) (Request, error) {
	e.mu.Lock()
	if err := e.dead; err != nil {
		e.mu.Unlock()
		return Request{}, err
	}
	r := e.requests.get()
	r.contiguous(buf)
	e.startRecv(r, context, src, tag, elem)
	h := r.handle()
	e.mu.Unlock()
	return h, nil
}

// IrecvVec is Irecv into several buffers, one after the other. They, and the slice of them, are weft's until the request is complete.
func (e *Engine) IrecvVec(context uint32, vec [][]byte, src, tag int) (Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return Request{}, e.dead
	}
	r := e.requests.get()
	r.vec = vec
	e.startRecv(r, context, src, tag, 1)
	return r.handle(), nil
}

func (e *Engine) startRecv(r *request, context uint32, src, tag, elem int) {
	r.kind, r.rank = kindRecv, src
	r.status.Elem = elem
	r.posted.Context, r.posted.Source, r.posted.Tag = context, int32(src), int32(tag)
	if m := e.table.Post(&r.posted); m != nil {
		e.take(r, m.Value)
		return
	}
	if len(e.failed) > 0 {
		if err := e.unanswerable(context, src); err != nil {
			e.table.Withdraw(&r.posted)
			e.complete(r, err)
		}
	}
}

// unanswerable is why nobody will send what a receive asks for; nil if somebody may.
func (e *Engine) unanswerable(context uint32, src int) error {
	if src == AnySource {
		return e.nobodyLeft(context)
	}
	if p := e.peers[src]; p != nil && p.state == peerFailed {
		return p.cause
	}
	return nil
}

// take gives an arrival that had been filed to the receive that matched it.
func (e *Engine) take(r *request, a *arrival) {
	if a.self != nil {
		e.deliverSelf(r, a.self)
		e.discard(a)
		return
	}
	r.status.Source, r.status.Tag, r.status.Bytes = int(a.match.Source), int(a.match.Tag), a.bytes
	p := a.peer
	if p != nil && p.state != peerOpen && !a.kept() {
		e.complete(r, p.cause) // what has not come will not come any more
		e.discard(a)
		return
	}
	for i := range a.parts {
		if part := &a.parts[i]; part.announced {
			e.fetch(r, p, part.source)
		} else {
			r.place(r.came, part.payload)
			r.came += len(part.payload)
		}
	}
	if a.coming {
		p.in.r, p.in.a = r, nil
	} else {
		r.whole = true
	}
	e.discard(a)
	e.maybeReceived(r)
}

// received completes a receive whose message is all there.
func (e *Engine) received(r *request) {
	if len(r.vec) == 1 && r.status.Bytes <= len(r.vec[0]) {
		e.complete(r, nil)
		return
	}
	if room := r.room(); r.status.Bytes > room {
		bytes := r.status.Bytes
		r.status.Bytes = room
		e.complete(r, Truncated(bytes, room, r.status.Source, r.status.Tag))
		return
	}
	e.complete(r, nil)
}

func (e *Engine) maybeReceived(r *request) {
	if r.whole && r.open == 0 && !r.completed() {
		e.received(r)
	}
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
			err = e.arrived(p, kind, body)
		}
		if err != nil {
			e.failPeer(p, err)
			return
		}
		if p.state != peerOpen {
			return
		}
		p.ch.Release()
		if p.watched && p.ch.Pressing() { // the peer goes on filling the ring meanwhile
			if e.kick(p); p.state != peerOpen {
				return
			}
		}
	}
	e.owe(p)
}

// owe does what messages that have been taken give occasion to, and sees to the credit that is owed for them. A message of ours carries
// that. Often one is about to be sent, in answer to what has just come: so CREDIT waits for the next pass, unless the peer might be waiting
// for it, or whoever makes this pass may be the last for a while.
func (e *Engine) owe(p *peer) {
	if p.ch.Pressing() || e.waiting.driver != nil {
		e.kick(p)
	} else if e.proceed(p) && p.ch.Owing() {
		e.later(p)
	}
}

func (e *Engine) arrived(p *peer, kind channel.Kind, body []byte) error {
	switch kind {
	case channel.Eager:
		env, payload, err := eager.Parse(body)
		if err != nil {
			return err
		}
		return e.arrivedWhole(p, env, payload)
	case channel.Batch:
		var run eager.Run
		for len(body) > 0 {
			rest, err := eager.ParseRun(body, &run)
			if err != nil {
				return err
			}
			for all := run.Payloads; run.Count > 0; run.Count-- {
				if err := e.arrivedWhole(p, run.Envelope, all[:run.Length:run.Length]); err != nil {
					return err
				}
				all = all[run.Length:]
			}
			body = rest
		}
		return nil
	case channel.RTS:
		rts, err := rendezvous.ParseRTS(body)
		if err != nil {
			return err
		}
		if err := e.begin(p, envelope{Context: rts.Context, Tag: rts.Tag}, int(rts.Length)); err != nil {
			return err
		}
		number := p.announced()
		if p.in.a != nil {
			p.in.a.number = number
		}
		return e.announced(p, rts.Source)
	case channel.First:
		env, total, payload, err := eager.ParseFirst(body)
		if err != nil {
			return err
		}
		if err := e.begin(p, env, total); err != nil {
			return err
		}
		return e.piece(p, payload)
	case channel.More:
		if len(body) == 0 {
			return fmt.Errorf("%w: a piece of a message with no bytes", transport.ErrProtocol)
		}
		return e.piece(p, body)
	case channel.Piece:
		source, err := rendezvous.ParseSource(body)
		if err != nil {
			return err
		}
		return e.announced(p, source)
	case channel.CTS:
		cts, err := rendezvous.ParseCTS(body)
		if err != nil {
			return err
		}
		return p.fabric.announcer.Granted(p.ch, cts)
	}
	return fmt.Errorf("%w: message kind %v", transport.ErrProtocol, kind)
}

// arrivedWhole takes a whole message: by far the most common case.
func (e *Engine) arrivedWhole(p *peer, env envelope, payload []byte) error {
	if env.Context == controlContext {
		return e.takenBack(p, payload)
	}
	if p.in.coming() {
		return fmt.Errorf("%w: a message began inside another", transport.ErrProtocol)
	}
	if m := e.table.Arrive(env.Context, int32(p.rank), env.Tag); m != nil {
		r := m.Value
		r.status.Source, r.status.Tag, r.status.Bytes = p.rank, int(env.Tag), len(payload)
		if len(r.vec) == 1 && len(payload) <= len(r.vec[0]) {
			words.Copy(r.vec[0], payload)
			e.complete(r, nil)
		} else {
			r.place(0, payload)
			e.received(r)
		}
		return nil
	}
	a := e.arrivals.get()
	a.bytes, a.peer = len(payload), p
	if len(payload) > 0 {
		e.keep(a, payload)
	}
	e.file(a, env, p.rank)
	return nil
}

// incoming is the message of a channel whose pieces are arriving, and where they go.
type incoming struct {
	r    *request // the receive that matched it
	a    *arrival // or, while none has
	left int      // bytes that have not come, nor been announced
}

func (in *incoming) coming() bool { return in.r != nil || in.a != nil }

// begin matches a message that comes in pieces.
func (e *Engine) begin(p *peer, env envelope, total int) error {
	in := &p.in
	switch {
	case in.coming():
		return fmt.Errorf("%w: a message began inside another", transport.ErrProtocol)
	case env.Context == controlContext:
		return fmt.Errorf("%w: a message of %d bytes to the engine itself", transport.ErrProtocol, total)
	}
	in.left = total
	if m := e.table.Arrive(env.Context, int32(p.rank), env.Tag); m != nil {
		in.r = m.Value
		in.r.at(p)
		in.r.status.Source, in.r.status.Tag, in.r.status.Bytes = p.rank, int(env.Tag), total
		return nil
	}
	in.a = e.arrivals.get()
	in.a.bytes, in.a.peer, in.a.coming = total, p, true
	e.file(in.a, env, p.rank)
	return nil
}

// piece takes the next bytes of the message that is arriving.
func (e *Engine) piece(p *peer, payload []byte) error {
	in := &p.in
	if !in.coming() || len(payload) > in.left {
		return fmt.Errorf("%w: %d bytes more where a message has %d to come", transport.ErrProtocol, len(payload), in.left)
	}
	in.left -= len(payload)
	if r := in.r; r != nil {
		r.place(r.came, payload)
		r.came += len(payload)
	} else if len(payload) > 0 {
		e.keep(in.a, payload)
	}
	e.pieceTaken(in)
	return nil
}

// announced takes the announcement of the next bytes of the message that is arriving: all of them, or an element.
func (e *Engine) announced(p *peer, s rendezvous.Source) error {
	in := &p.in
	if !in.coming() || s.Length > uint64(in.left) {
		return fmt.Errorf("%w: %d bytes announced where a message has %d to come", transport.ErrProtocol, s.Length, in.left)
	}
	in.left -= int(s.Length)
	if r := in.r; r != nil {
		if e.fetch(r, p, s); p.state != peerOpen {
			return nil // the peer has been given up, and the receive with it
		}
	} else {
		in.a.parts = append(in.a.parts, part{source: s, announced: true})
	}
	e.pieceTaken(in)
	return nil
}

// pieceTaken ends the message when it was its last piece.
func (e *Engine) pieceTaken(in *incoming) {
	if in.left > 0 {
		return
	}
	r, a := in.r, in.a
	in.r, in.a = nil, nil
	if a != nil {
		a.coming = false
		return
	}
	r.whole = true
	e.maybeReceived(r)
}

// copiesAPass is how many bytes of announced messages one pass copies: then others have their turn.
const copiesAPass = 4 << 20

// fetch has announced bytes come into the receive that matched their message, behind what has come so far.
func (e *Engine) fetch(r *request, p *peer, s rendezvous.Source) {
	if r.completed() {
		return // it has failed already
	}
	if p.state != peerOpen {
		e.complete(r, p.cause)
		return
	}
	r.at(p)
	r.open++
	from := r.came
	r.came += int(s.Length)
	e.window = r.window(e.window[:0], from, r.came)
	var done bool
	var err error
	if len(e.window) == 1 && int(s.Length) <= e.copies {
		if done, err = p.fabric.fetcher.Get(p.ch, s, e.window[0]); done {
			e.copies -= int(s.Length)
		}
	}
	if !done {
		done, err = p.fabric.fetcher.Start(p.ch, s, e.window, r.token())
	}
	if done {
		r.open--
	}
	if err != nil {
		e.failPeer(p, err)
		if !r.completed() { // the fetcher had not taken it
			e.complete(r, p.cause)
		}
	} else if p.fabric.fetcher.Full(p.ch) || p.ch.Paused() {
		e.later(p)
	}
}

// fetched notes what has become of a fetch: with done all of it is there.
func (e *Engine) fetched(p *peer, token uint64, done bool, err error) {
	if r := e.requests.byToken(token); done && r != nil && !r.completed() {
		r.open--
		e.maybeReceived(r)
	}
	e.goOn(p, err)
}
