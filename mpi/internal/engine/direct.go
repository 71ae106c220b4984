package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
)

const (
	directLooks = 4000 // in the ring, before the receive is posted as any other
	directPolls = 100  // of the provider, where what has come is placed by that
	directTurn  = 16   // of these, one is for all peers; the others are for the one that is waited for, if it can be looked at alone
	directRuns  = 64   // direct receives between two passes over everything else, fewer where they copy much
)

// RecvNext is worth a try before Recv. A blocking receive that names its source, while nothing else is posted or kept, most often gets the very
// next message of that source. So that is looked for in the ring for a while and copied out, with no request and no table in between. ok tells
// whether that was so; bytes is the message's length then. Otherwise nothing has happened that Recv would not find, but for bytes in buf. src and tag are no wildcards.
//
// The lock is held meanwhile, and left as soon as anybody else wants it. Results are few, and words, since that is what stays in registers.
func (e *Engine) RecvNext(context uint32, buf []byte, src, tag int) (bytes int, ok bool) {
	var answer uintptr
	e.mu.Lock()
	if e.directs++; (e.directs%directRuns == 0 || e.copies <= 0) && !e.handled() && e.dead == nil {
		e.pass() // now, while the message may still be on its way
	}
	if p := e.peers[src]; e.direct(p) {
		if bytes, ok = e.next(p, envelope{Context: context, Tag: int32(tag)}, buf); ok {
			answer = eager.Answer(p.ch, bytes) // as long as what it answers
		}
	}
	e.mu.Unlock()
	if answer != 0 {
		sys.PrefetchWrite(answer) // most likely it comes; sooner, and the peer's looks would take the line back
	}
	return bytes, ok
}

// direct tells whether the next message of a peer may be taken straight out of its ring.
func (e *Engine) direct(p *peer) bool {
	if p == nil || p.state != peerOpen || e.spinFor == 0 || p.in.coming() || e.handled() {
		return false
	}
	posted, unexpected := e.table.Waiting()
	return posted+unexpected == 0
}

// next takes the next message of a peer if it comes soon and is the one that is wanted.
func (e *Engine) next(p *peer, env envelope, buf []byte) (bytes int, ok bool) {
	if len(e.held.peers) > 0 {
		e.flush()
	}
	if len(e.retry) > 0 {
		e.retryPeers()
	}
	eager.Expect(p.ch, len(buf))
	owing := p.owing()
	looks := directLooks
	if !p.watched {
		looks = directPolls
	}
	came := !p.watched // then nothing comes to the ring but by what is polled here
	for look := range looks {
		if came || p.watched && p.ch.Ready() {
			n, ok := eager.Recv(p.ch, env, buf)
			if !ok {
				// Not all of it was there, or the channel itself had something to say, or it is for another receive.
				kind, body, there, err := p.ch.Next()
				if there && kind == channel.RTS {
					return e.get(p, env, body, buf)
				}
				if owing = p.owing(); err == nil && p.ch.Owing() {
					e.later(p) // whether or not a message follows
				}
				if there || err != nil {
					if n, ok = eager.Recv(p.ch, env, buf); !ok {
						return 0, false // whoever drains the channel comes to that too
					}
				}
			}
			if ok {
				if owing || p.ch.Behind() {
					e.owe(p)
				}
				return n, true
			}
		}
		if e.mu.wanted() {
			return 0, false
		}
		if p.watched {
			sys.AwaitLoads()
			continue
		}
		var other bool
		if came, other = e.polled(p, look%directTurn != 0); other {
			return 0, false
		}
	}
	return 0, false
}

// get takes an announced message if it is the one that is wanted, and its bytes can be copied at once.
func (e *Engine) get(p *peer, env envelope, body, buf []byte) (bytes int, ok bool) {
	rts, err := rendezvous.ParseRTS(body)
	if err != nil || rts.Context != env.Context || rts.Tag != env.Tag {
		return 0, false
	}
	done, err := p.fabric.fetcher.Get(p.ch, rts.Source, buf)
	if !done {
		return 0, false
	}
	e.copies -= int(rts.Length)
	p.announced()
	p.ch.Release()
	if err != nil {
		e.failPeer(p, err)
	} else {
		e.owe(p)
	}
	return int(rts.Length), true
}

// owing tells whether something is due to a peer, or was before its next message.
func (p *peer) owing() bool { return p.ch.Owing() || p.waiting() || !p.fabric.quiet() }

// polled has the provider place what has come, of this peer alone if that will do. It tells whether that may be worth a try, and whether anything else
// has happened.
func (e *Engine) polled(p *peer, alone bool) (came, other bool) {
	if alone && p.looker != nil {
		if looked, came := p.looker.Look(); looked {
			return came, false
		}
	}
	n := p.fabric.cq.Poll(e.wcs[:])
	for i := range n {
		e.completed(p.fabric, &e.wcs[i])
	}
	return p.ch.Ready(), n > 0
}

// Truncated is the error of a receive with room for fewer bytes than its message has.
func Truncated(bytes, room, source, tag int) error {
	return fmt.Errorf("%w: %d bytes from rank %d with tag %d, room for %d", ErrTruncate, bytes, source, tag, room)
}
