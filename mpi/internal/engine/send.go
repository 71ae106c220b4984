package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// Send sends buf to a world rank and returns when buf is the caller's again: copied (eager), or taken by the receiver.
func (e *Engine) Send(context uint32, buf []byte, dst, tag int) error {
	env := envelope{Context: context, Tag: int32(tag)}
	e.mu.Lock()
	// The common case needs no request: the peer is connected, nothing waits before us, and the message fits.
	if p := e.peers[dst]; p != nil && p.free(len(buf)) {
		sent, err := eager.Send(p.ch, env, buf, false)
		if sent {
			p.stats.eager(len(buf))
			e.mu.Unlock()
			return nil
		}
		if err != nil {
			e.failPeer(p, err)
			e.mu.Unlock()
			return p.cause
		}
		if e.persists(p, env, buf, false) {
			e.mu.Unlock()
			return nil
		}
	}
	if err := e.dead; err != nil {
		e.mu.Unlock()
		return err
	}
	r := e.requests.get()
	r.contiguous(buf)
	e.startSend(r, env, dst, false)
	e.mu.Unlock()
	_, err := e.wait(r)
	return err
}

// Isend begins a send. buf must stay as it is until the request is complete.
func (e *Engine) Isend(context uint32, buf []byte, dst, tag int) (Request, error) {
	e.mu.Lock()
	if err := e.dead; err != nil {
		e.mu.Unlock()
		return Request{}, err
	}
	env := envelope{Context: context, Tag: int32(tag)}
	more := e.holds(dst, len(buf))
	if p := e.peers[dst]; p != nil && (more && e.batched(p, env, buf) || e.sendsNow(p, env, buf, more)) {
		h := e.requests.receipt()
		e.mu.Unlock()
		return h, nil
	}
	r := e.requests.get()
	r.contiguous(buf)
	e.startSend(r, env, dst, more && e.peers[dst].burst.held)
	h := r.handle()
	e.mu.Unlock()
	return h, nil
}

// IsendVec is Isend of one message out of several buffers. They, and the slice of them, must stay as they are until the request is
// complete.
func (e *Engine) IsendVec(context uint32, vec [][]byte, dst, tag int) (Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return Request{}, e.dead
	}
	r := e.requests.get()
	r.vec = vec
	e.startSend(r, envelope{Context: context, Tag: int32(tag)}, dst, e.holds(dst, r.room()))
	return r.handle(), nil
}

// sendsNow sends a message that fits a slot and need not wait behind others; false if it has to go another way.
func (e *Engine) sendsNow(p *peer, env envelope, buf []byte, more bool) bool {
	if p.batch.Count() > 0 && p.state == peerOpen {
		if sent, err := e.sendBatch(p, true); !sent || err != nil {
			return false // it is tried again with the message that waits behind it
		}
	}
	if !p.free(len(buf)) {
		return false
	}
	sent, err := eager.Send(p.ch, env, buf, more)
	if !sent {
		return err == nil && e.persists(p, env, buf, more) // what is wrong with the channel the next attempt finds too
	}
	p.stats.eager(len(buf))
	return true
}

// persists sends a message that has found no room, if there is some soon. Where a pass was made for that nothing is held back any more.
func (e *Engine) persists(p *peer, env envelope, buf []byte, more bool) bool {
	for len(buf) <= eager.Max(p.ch) && (e.relieved(p) || p.ch.Widen()) && p.free(len(buf)) {
		if sent, err := eager.Send(p.ch, env, buf, more && p.burst.held); sent {
			p.stats.eager(len(buf))
			return true
		} else if err != nil {
			break
		}
	}
	return false
}

// relieved waits for room in the ring of a peer who sees what is written there at once, and so most likely is taking messages out at this moment: that
// costs less than a send that waits in the queue. When it has been in vain the lap is widened, or others are in the queue, and nobody waits here. Now and then it
// makes a pass: everything else needs those, and a stream of sends that never waits for a request makes none.
func (e *Engine) relieved(p *peer) bool {
	if !p.watched || p.ch.Paused() || e.spinFor == 0 || e.handled() {
		return false
	}
	if e.reliefs++; e.reliefs%directRuns == 0 {
		e.pass()
		return p.state == peerOpen
	}
	for range roomLooks {
		if p.ch.Ready() {
			given, blocked, err := p.ch.Relieve()
			if p.ch.Owing() {
				e.later(p)
			}
			if err != nil {
				e.failPeer(p, err)
			}
			if given || blocked || err != nil {
				return given && err == nil
			}
		}
		if e.mu.wanted() {
			break
		}
		sys.AwaitLoads()
	}
	return false
}

// roomLooks is how often relieved looks: for a few µs.
const roomLooks = 200

// holds tells whether the bytes of a send that nobody waits for yet may be held back for a while, to travel with others.
func (e *Engine) holds(dst, n int) bool { return dst != e.rank && e.held.hold(e.peer(dst), n) }

// startSend begins a send under the lock. With more its bytes are held back for a while, to travel with others.
func (e *Engine) startSend(r *request, env envelope, dst int, more bool) {
	r.kind, r.rank = kindSend, dst
	if dst == e.rank {
		r.msg.Start(env, r.vec)
		e.sendSelf(r)
		return
	}
	p := e.peer(dst)
	r.msg.Start(env, r.vec)
	switch p.state {
	case peerFailed:
		e.complete(r, p.cause)
		return
	case peerClosed:
		e.complete(r, ErrFinalized)
		return
	case peerIdle:
		e.connect(p)
	}
	r.at(p)
	if p.state != peerOpen || p.queued() {
		p.enqueue(r)
		return
	}
	if through, err := e.trySend(p, r, more); err != nil {
		p.enqueue(r) // so that it fails with all the others of this peer
		e.failPeer(p, err)
	} else if !through {
		p.enqueue(r)
	}
}

// free tells whether nothing keeps a message from being copied into a slot now, as far as is known before that is tried.
func (p *peer) free(n int) bool {
	return p.state == peerOpen && n <= p.most && !p.waiting() && !p.holdsBack(n)
}

// holdsBack tells whether the peer has no memory to spare for a payload.
func (p *peer) holdsBack(n int) bool { return n > 0 && p.ch.Held() }

// trySend hands a send to its protocols; false when there is no room now for all of it. It never blocks.
func (e *Engine) trySend(p *peer, r *request, more bool) (through bool, err error) {
	if sent, err := e.sendBatch(p, true); !sent {
		return false, err
	}
	m := &r.msg
	for {
		o := channel.Oversized
		if m.Context == controlContext || !r.sync && !p.holdsBack(m.Total()) && !(len(r.vec) == 1 && m.Total() > p.most) {
			var n int
			n, o, err = m.Advance(p.ch, more)
			p.stats.EagerBytes += uint64(n)
			if err != nil {
				return false, err
			}
		}
		switch o {
		case channel.Waiting:
			return false, nil
		case channel.Oversized:
			if ok, err := e.announce(p, r, more); !ok {
				return false, err
			}
		}
		if p.ch.Paused() {
			e.later(p) // the message may be out but for what has the peer look at it
		}
		if m.Begun() && m.Done() {
			if r.open == 0 {
				p.stats.Eager++
				e.complete(r, nil)
			}
			return true, nil
		}
	}
}

// announce has the peer fetch a message, or the front element of one, when it has matched it.
func (e *Engine) announce(p *peer, r *request, more bool) (ok bool, err error) {
	m := &r.msg
	switch {
	case !m.Begun() && len(r.vec) == 1:
		ok, err = p.fabric.announcer.Announce(p.ch, m.Envelope, r.vec[0], r.token(), more)
		if ok {
			m.Announced()
			r.number = p.announcing()
		}
	case !m.Begun():
		return m.Open(p.ch)
	default:
		ok, err = p.fabric.announcer.AnnouncePiece(p.ch, m.Front(), r.token(), more)
	}
	if ok {
		if r.open++; r.open == 1 {
			p.stats.Rendezvous++
		}
		p.stats.RendezvousBytes += uint64(len(m.Front()))
		m.Skip()
	}
	return ok, err
}

// advance starts the sends that waited, in order, as far as there is room.
func (e *Engine) advance(p *peer) {
	if sent, err := e.sendBatch(p, true); err != nil {
		e.failPeer(p, err)
		return
	} else if !sent {
		return
	}
	for p.state == peerOpen && p.queued() {
		r := p.queue[p.head]
		through, err := e.trySend(p, r, p.head+1 < len(p.queue))
		if err != nil {
			e.failPeer(p, err)
			return
		}
		if !through {
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
	env := r.msg.Envelope
	if m := e.table.Arrive(env.Context, int32(e.rank), env.Tag); m != nil {
		e.deliverSelf(m.Value, r)
		return
	}
	a := e.arrivals.get()
	a.bytes = r.msg.Total()
	if a.bytes > selfCopied || r.sync {
		a.self, r.filed = r, a
		e.file(a, env, e.rank)
		return
	}
	for _, b := range r.vec {
		if len(b) > 0 {
			e.keep(a, b)
		}
	}
	e.file(a, env, e.rank)
	e.complete(r, nil)
}

// selfCopied is the size of a message to oneself up to which it is copied when there is no receive for it yet.
const selfCopied = 600

// deliverSelf copies a message of this rank into its receive.
func (e *Engine) deliverSelf(r, from *request) {
	r.status.Source, r.status.Tag, r.status.Bytes = e.rank, int(from.msg.Tag), from.msg.Total()
	at := 0
	for _, b := range from.vec {
		r.place(at, b)
		at += len(b)
	}
	e.received(r)
	e.complete(from, nil)
}

var _ transport.Acceptor = (*acceptor)(nil)
