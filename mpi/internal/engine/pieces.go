package engine

import (
	"cmp"

	"github.com/weft-mpi/weft/eager"
)

// Messages of middling size that follow one another to a peer who shares our memory go in pieces (docs/adr/0024): so they stay in the lines of the ring that both have
// in their nearest caches. One by itself goes whole: that takes less time until it is there.

// cuts tells whether a message of a stream goes in pieces.
func (e *Engine) cuts(p *peer, n int) bool {
	return p.watched && e.spinFor > 0 && !e.handled() && p.free(n) && p.ch.Streams() && n <= eager.Max(p.ch)
}

// sendPieces begins to send a message in pieces; false if it is to go another way. What finds no room in time waits in the peer's queue.
func (e *Engine) sendPieces(p *peer, env envelope, buf []byte) (Request, bool) {
	gone, err := e.pieces.Begin(p.ch, env, buf)
	for gone == 0 && err == nil && e.finds(p) && p.free(len(buf)) {
		gone, err = e.pieces.Begin(p.ch, env, buf)
	}
	if gone == 0 {
		return Request{}, false // what is wrong with the channel the next attempt finds too
	}
	for gone < len(buf) && err == nil {
		var n int
		if n, err = e.pieces.More(p.ch, buf[gone:], p.burst.held); n == 0 && (err != nil || !e.finds(p)) {
			break
		}
		gone += n
	}
	if gone == len(buf) {
		p.stats.eager(gone)
		return e.requests.receipt(), true
	}
	p.stats.EagerBytes += uint64(gone)
	r := e.requests.get()
	r.kind, r.rank = kindSend, p.rank
	r.contiguous(buf[gone:])
	r.msg.Resume(env, r.vec)
	r.at(p)
	if p.state != peerOpen {
		e.complete(r, cmp.Or(p.cause, ErrFinalized))
		return r.handle(), true
	}
	p.enqueue(r)
	if err != nil {
		e.failPeer(p, err)
	}
	return r.handle(), true
}
