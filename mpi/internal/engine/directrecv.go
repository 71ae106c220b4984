package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
)

const (
	maxRingPolls     = 4000 // in the ring, before the receive is posted as any other
	maxProviderPolls = 100  // of the provider, where what has come is placed by that
	// of these, one is for all peers; the others are for the one that is waited for, if it can be looked at
	// alone
	fullPollInterval = 16
	// direct receives between two passes over everything else, fewer where they copy much
	directRecvInterval = 64
)

// prefetch takes the line to which an answer will go for writing. The lock is not held. Earlier, the peer's
// polls would take the line back.
func prefetch(addr uintptr) {
	if addr != 0 {
		sys.PrefetchWrite(addr)
	}
}

// A blocking receive that names its source most often gets the very next message of that source, while
// nothing else is posted or unexpected. So it polls for that in the ring for a while and copies it out,
// with no request and no table in between. If that fails, nothing has happened that a posted receive would
// not find, but for bytes in its buffer.

// canRecvDirectLocked tells whether the next message of a rank may be taken straight out of its ring. Now and
// then it makes progress first, while the message may still be on its way.
func (v *Recvs) canRecvDirectLocked(src int) bool {
	v.e.mu.assertHeld()
	v.directRecvs++
	if v.directRecvs%directRecvInterval == 0 || v.copyBudget <= 0 {
		v.pollFirstLocked()
	}
	p := v.e.peers[src]
	if p == nil || p.state != peerOpen || v.e.waiting.spinTime == 0 || p.incoming.active() ||
		v.e.completionHandler.active() {
		return false
	}
	posted, unexpected := v.e.matching.Lengths()
	return posted+unexpected == 0
}

func (v *Recvs) pollFirstLocked() {
	if !v.e.completionHandler.active() && v.e.stopped == nil {
		v.e.progress.poll()
	}
}

// recvDirectLocked takes the next message of a peer if it comes soon and is the one that is wanted. It stops
// as soon as anybody else wants the lock. Its results are words, which stay in
// registers.
func (v *Recvs) recvDirectLocked(p *peer, env envelope, buf []byte) (bytes int, ok bool) {
	v.e.mu.assertHeld()
	if len(v.e.coalescer.peers) > 0 {
		v.e.coalescer.flush()
	}
	if len(v.e.progress.deferred) > 0 {
		v.e.progress.advanceDeferred()
	}
	eager.Expect(p.ch, len(buf))
	owing := p.workPending()
	v.e.recorder.Expect(recorder.Received, env.Context, p.rank, int(env.Tag), len(buf))
	// to a ring that is not polled nothing comes but by what is polled here
	polls, came := min(maxRingPolls, v.e.waiting.maxLooks), !p.polled
	if came {
		polls = maxProviderPolls
	}
	for poll := range polls {
		if came || p.polled && p.ch.Ready() {
			n, ok := eager.TryRecv(p.ch, env, buf)
			if !ok {
				// Not all of it was there, or the channel itself had something to say, or it is for another
				// receive.
				kind, body, there, err := p.ch.Next()
				if there && kind == channel.RTS {
					return v.recvAnnouncedLocked(p, env, body, buf)
				}
				if owing = p.workPending(); err == nil && p.ch.Due() != channel.DueNothing {
					v.e.progress.deferPeer(p) // whether or not a message follows
				}
				if there || err != nil {
					if n, ok = eager.TryRecv(p.ch, env, buf); !ok {
						return 0, false // whoever drains the channel comes to that too
					}
				}
			}
			if ok {
				if owing || p.ch.CreditMayBeDue() && p.ch.Due() != channel.DueNothing {
					v.progressAfterRecvLocked(p)
				}
				v.e.recorder.NoteExpected(n)
				v.e.hook.received(env.Context, p.rank, env.Tag, n, v.began)
				return n, true
			}
		}
		if v.e.mu.wanted() {
			return 0, false
		}
		if p.polled {
			sys.AwaitLoads()
			continue
		}
		var other bool
		if came, other = v.e.progress.pollPeer(p, poll%fullPollInterval != 0); other {
			return 0, false
		}
	}
	return 0, false
}

// recvAnnouncedLocked takes an announced message if it is the one that is wanted, and its bytes can be copied
// at once.
func (v *Recvs) recvAnnouncedLocked(p *peer, env envelope, body, buf []byte) (bytes int, ok bool) {
	v.e.mu.assertHeld()
	rts, err := rendezvous.ParseRTS(body)
	if err != nil || rts.Context != env.Context || rts.Tag != env.Tag {
		return 0, false
	}
	done, err := p.fabric.receiver.TryCopy(p.ch, rts.Source, buf)
	if !done {
		return 0, false
	}
	v.copyBudget -= int(rts.Length)
	v.e.recorder.Note(recorder.Received, env.Context, p.rank, int(env.Tag), int(rts.Length))
	v.e.hook.received(env.Context, p.rank, env.Tag, int(rts.Length), v.began)
	p.ch.Release()
	if err != nil {
		v.e.failures.failPeer(p, err)
	} else {
		v.progressAfterRecvLocked(p)
	}
	return int(rts.Length), true
}

// workPending tells whether something is due to a peer, or was before its next message.
func (p *peer) workPending() bool {
	return p.ch.Due() != channel.DueNothing || p.sendPending() || !p.fabric.rendezvousIdle()
}
