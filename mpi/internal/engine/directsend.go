package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
)

// An announced blocking send usually finds a receive that is waiting. Between ranks of a host its FIN then
// arrives a few microseconds later: the receiver writes it as a word into the sender's memory. So the send
// polls that word for a while, without a request or a pass. If the word does not arrive, the send goes on as
// any other.
//
// If the receiver of a message is likely to be waiting, since it has consumed all earlier messages, costs
// decide (copycosts.go): up to some length the message goes through the ring, in fragments if it is long;
// longer ones are announced, even those that fit a slot. If the receiver does not take the announcement of
// one of these at once, the sender withdraws it and copies the message into a slot. So such a send waits at
// most for a pass of the receiver, not for the receive.

const (
	finPolls      = 128 // polls for the FIN of a short message
	bytesPerPoll  = 128 // bytes of the message for each further poll
	pollsPerWatch = 8   // polls between two looks into the rings of the peers
)

// directToken is the token of an announcement that has no request.
const directToken = 1<<32 - 1

// backoff counts failures in a row of a way to send, to try it less often.
type backoff struct {
	inARow int
	skip   int // messages to send otherwise before the next try
}

// maxInARow bounds inARow, and so skip to 1023 messages.
const maxInARow = 10

// next reports whether to try for the next message.
func (b *backoff) next() bool {
	if b.skip > 0 {
		b.skip--
		return false
	}
	return true
}

func (b *backoff) failed() {
	b.inARow = min(b.inARow+1, maxInARow)
	b.skip = 1<<b.inARow - 1
}

// sendLongLocked does a blocking send of a message longer than shortLimit. If ok is false it did nothing. If
// r is nil the send is complete; otherwise the caller waits for r, and sends again if r was withdrawn.
func (s *Sends) sendLongLocked(p *peer, env envelope, buf []byte) (r *request, ok bool) {
	s.e.mu.assertHeld()
	if s.canAnnounceDirectLocked(p) && p.ch.AllConsumed() &&
		p.copies.throughRing(len(buf), p.copies.awaited) {
		if r, ok = s.sendThroughRingLocked(p, env, buf); ok {
			return r, true
		}
	}
	if len(buf) > p.eagerLimit {
		if s.canAnnounceDirectLocked(p) {
			return s.sendAnnouncedLocked(p, env, buf)
		}
		return nil, false
	}
	if len(buf) > p.copies.awaited && p.unawaited.next() && s.canAnnounceDirectLocked(p) &&
		p.ch.AllConsumed() {
		if r, ok = s.sendAnnouncedLocked(p, env, buf); ok {
			if r == nil {
				p.unawaited.inARow = 0
				return nil, true
			}
			p.unawaited.failed()
			if !r.completed() {
				s.e.Cancels.cancelLocked(r, nil)
			}
			return r, true
		}
	}
	return nil, p.canSendEager(len(buf)) && s.sendEagerLocked(p, env, buf, 0)
}

// canAnnounceDirectLocked reports whether a message can be announced now, and its sender poll for the FIN.
func (s *Sends) canAnnounceDirectLocked(p *peer) bool {
	s.e.mu.assertHeld()
	return p.state == peerOpen && p.polled && !p.sendPending() && s.e.waiting.spinTime > 0 &&
		!s.e.completionHandler.active() && s.e.stopped == nil && !s.e.failures.noted.Load()
}

// sendAnnouncedLocked announces a message and polls for its FIN for a short while. If ok is false it did
// nothing. If r is nil the send is complete.
func (s *Sends) sendAnnouncedLocked(p *peer, env envelope, buf []byte) (r *request, ok bool) {
	s.e.mu.assertHeld()
	id, sent, err := p.fabric.sender.TrySendRTS(p.ch, env, buf, directToken, false)
	if !sent || err != nil {
		return nil, false // the caller retries with a request and gets the same error
	}
	s.e.hook.sent(env, p.rank, len(buf))
	s.e.recorder.Note(recorder.Announced, env.Context, p.rank, int(env.Tag), len(buf))
	p.stats.Rendezvous++
	p.stats.RendezvousBytes += uint64(len(buf))
	if p.ch.Due() == channel.DueResize {
		s.e.progress.deferPeer(p) // the resize may hold back the write that notifies the peer
	} else if rendezvous.EndsInWord(id) && s.awaitFINLocked(p, len(buf)) {
		return nil, true
	}
	r = s.e.Requests.get()
	r.contiguous(buf)
	if !s.begunLocked(p, r, env, 1) {
		return r, true
	}
	r.openTransfers, r.announcement = 1, id+1
	p.fabric.sender.SetToken(id, r.token())
	s.retryIfQueueFullLocked(p)
	return r, true
}

// begunLocked makes r, which has the buffers of a message, a send of which the first buffers are on their
// way. It returns false if the peer has failed meanwhile: r has failed too.
func (s *Sends) begunLocked(p *peer, r *request, env envelope, buffers int) bool {
	s.e.mu.assertHeld()
	r.kind, r.rank = kindSend, p.rank
	r.msg.Start(env, r.vec)
	r.msg.MarkStarted()
	for range buffers {
		r.msg.Skip()
	}
	r.setPeer(p)
	if p.state != peerOpen {
		s.e.Requests.complete(r, p.cause)
		return false
	}
	return true
}

// awaitFINLocked polls for the FIN of the direct send for a short while, and takes it. It stops as soon as
// another goroutine wants the lock, or something else has arrived.
func (s *Sends) awaitFINLocked(p *peer, n int) bool {
	s.e.mu.assertHeld()
	sender, last := p.fabric.sender, false
	for poll := range finPolls + n/bytesPerPoll {
		token, came, err := sender.TakeFIN(p.ch)
		if came {
			if err == nil && token == directToken {
				s.e.recorder.Note(recorder.Taken, 0, p.rank, 0, 0)
				return true
			}
			s.onAnnouncementDone(p, token, err == nil, err)
			if p.state != peerOpen {
				return false
			}
			continue
		}
		if last || s.e.mu.wanted() {
			return false
		}
		if n >= sharedcopy.Min {
			sender.CopyShared()
		}
		if poll%pollsPerWatch == 0 && p.fabric.anyReady() {
			last = true // the peer's next message follows its FIN
			continue
		}
		sys.AwaitLoads()
	}
	return false
}

// anyReady reports whether anything is in the ring of a peer that is polled.
func (f *fabric) anyReady() bool {
	for _, p := range f.polled {
		if p.ch.Ready() {
			return true
		}
	}
	return false
}

// takeFINsLocked ends the announcements whose FINs have arrived as words.
func (s *Sends) takeFINsLocked(f *fabric) (any bool) {
	s.e.mu.assertHeld()
	for i := 0; ; {
		c, at := f.sender.NextFIN(i)
		if c == nil {
			return any
		}
		i, any = at, true
		p := f.peerOf(c.QP().Num())
		token, came, err := f.sender.TakeFIN(c)
		if p == nil || !came {
			return any
		}
		s.onAnnouncementDone(p, token, err == nil, err)
	}
}
