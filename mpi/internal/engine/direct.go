package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
)

const (
	directLooks = 400 // in the ring, before the receive is posted as any other
	directRuns  = 64  // direct receives between two passes over everything else
)

// RecvNext is worth a try before Recv. A blocking receive that names its source, while nothing else is posted or kept, most often gets the very
// next message of that source. Where that is placed without this side's taking part, it is looked for in the ring for a while and copied out,
// with no request and no table in between. ok tells whether that was so; bytes and got are the message's length and its tag then. Otherwise
// nothing has happened that Recv would not find.
//
// The lock is held meanwhile, and left as soon as anybody else wants it. Results are few, and words, since that is what stays in registers.
func (e *Engine) RecvNext(context uint32, buf []byte, src, tag int) (bytes, got int, ok bool) {
	if uint(src) >= uint(len(e.peers)) {
		return 0, 0, false
	}
	e.mu.Lock()
	if p := e.peers[src]; e.direct(p) {
		bytes, got, ok = e.next(p, context, buf, tag)
	}
	e.mu.Unlock()
	return bytes, got, ok
}

// direct tells whether the next message of a peer may be taken straight out of its ring.
func (e *Engine) direct(p *peer) bool {
	if p == nil || !p.watched || p.state != peerOpen || e.spinFor == 0 || p.in.coming() {
		return false
	}
	if posted, unexpected := e.table.Waiting(); posted+unexpected > 0 {
		return false
	}
	e.directs++
	return e.directs%directRuns != 0
}

// next takes the next message of a peer if it comes soon and is the one that is wanted.
func (e *Engine) next(p *peer, context uint32, buf []byte, tag int) (bytes, got int, ok bool) {
	e.flush()
	if len(e.retry) > 0 {
		e.retryPeers()
	}
	for range directLooks {
		if p.ch.Ready() {
			kind, body, whole, err := p.ch.Next()
			if !whole || err != nil || kind != channel.Eager {
				break
			}
			env, payload, err := eager.Parse(body)
			if err != nil || len(payload) > len(buf) || env.Context != context || int(env.Tag) != tag && (tag != AnyTag || env.Context == controlContext) {
				break
			}
			copy(buf, payload)
			p.ch.Release()
			e.owe(p)
			return len(payload), int(env.Tag), true
		}
		if e.mu.wanted() {
			return 0, 0, false
		}
	}
	e.drain(p)
	return 0, 0, false
}

// Truncated is the error of a receive with room for fewer bytes than its message has.
func Truncated(bytes, room, source, tag int) error {
	return fmt.Errorf("%w: %d bytes from rank %d with tag %d, room for %d", ErrTruncate, bytes, source, tag, room)
}
