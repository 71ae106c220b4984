package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
)

const (
	maxRingPolls     = 4000 // of the ring, before the receive is posted
	maxProviderPolls = 100  // of the provider, if the provider places arrivals
	// one in so many of these polls is for all peers; the others poll only the awaited peer, if the provider
	// can
	fullPollInterval = 16
	// direct receives between two passes, fewer if they copy much
	directRecvInterval = 64
)

// prefetch fetches the cache line to which an answer will go, for writing. The lock is not held. Any earlier,
// the peer's polls would take the line back.
func prefetch(addr uintptr) {
	if addr != 0 {
		sys.PrefetchWrite(addr)
	}
}

// A blocking receive with a given source usually gets the next message of that source, while nothing else is
// posted or unexpected. So it polls the ring for a while and copies the message out, without a request and
// without the matching table. If that fails, nothing has changed but bytes in its buffer, and the receive is
// posted.

// canRecvDirectLocked reports whether the next message of a rank may be taken directly from its ring. At
// times it makes a pass first, while the message may still be on its way.
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

// recvDirectLocked takes the next message of a peer if it arrives soon and has the envelope env. It stops as
// soon as another goroutine wants the lock. Its results are words, which stay in registers.
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
	// into a ring that is not polled, only the polls below bring messages
	polls, came := min(maxRingPolls, v.e.waiting.maxLooks), !p.polled
	if came {
		polls = maxProviderPolls
	}
	for poll := range polls {
		if came || p.polled && p.ch.Ready() {
			n, ok := eager.TryRecv(p.ch, env, buf)
			if !ok {
				// Part of the message is missing, or it is a control message, or it is for another receive.
				kind, body, there, err := v.nextDirectLocked(p)
				if there && kind == channel.RTS {
					return v.recvAnnouncedLocked(p, env, body, buf)
				}
				if there && kind == channel.First {
					return v.recvFragmentsLocked(p, env, body, buf)
				}
				if owing = p.workPending(); err == nil && p.ch.Due() != channel.DueNothing {
					v.e.progress.deferPeer(p) // whether or not a message follows
				}
				if there || err != nil || p.state != peerOpen {
					if n, ok = eager.TryRecv(p.ch, env, buf); !ok {
						return 0, false // draining the channel finds the same
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

// nextDirectLocked is Channel.Next for a receive that polls the ring itself. A CREDIT that Next takes is an
// event that no pass sees any more, so what has waited for it is sent here.
func (v *Recvs) nextDirectLocked(p *peer) (kind channel.Kind, body []byte, there bool, err error) {
	v.e.mu.assertHeld()
	kind, body, there, err = p.ch.Next()
	if !there && err == nil && p.awaitsCredit() {
		v.e.progress.advancePeer(p)
	}
	return kind, body, there, err
}

// recvAnnouncedLocked takes an announced message if it has the envelope env, and its bytes can be copied at
// once.
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

// workPending reports whether anything is due to be sent to the peer.
func (p *peer) workPending() bool {
	return p.ch.Due() != channel.DueNothing || p.awaitsCredit()
}

// awaitsCredit reports whether there may be something that goes out as soon as the peer returns credit.
func (p *peer) awaitsCredit() bool {
	return p.sendPending() || len(p.controls) > 0 || !p.fabric.rendezvousIdle()
}
