package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
)

// A blocking send that is announced most often is taken by a receive that waits already. Between ranks of a
// host its FIN then comes, as a word, a microsecond or a few later. So the send waits for that word alone for
// a while, with no request and no pass in between. If it does not come, the send goes on as any other.
//
// A message that fits a slot is announced too, from some length on, if its receiver is likely to wait: it has
// taken, and answered, all earlier ones. If it does not take the message at once, the sender asks for it
// back, and copies it into a slot: so such a send does not wait for its receive, but for a pass of the
// receiver at most.

const (
	finPolls      = 128 // looks for the FIN of a short message
	bytesPerPoll  = 128 // each so many bytes of the message make for one more
	pollsPerWatch = 8   // between two looks into the rings of the peers
)

// directToken is the token of an announcement that has no request.
const directToken = 1<<32 - 1

// unawaited is what a sender remembers of messages that were announced since they seemed to be awaited, and
// were not.
type unawaited struct {
	inARow int
	skip   int // messages that go into slots before the next one is announced
}

// maxUnawaited bounds how long slots are preferred: for 1023 messages.
const maxUnawaited = 10

// sendLongLocked is a blocking send of a message that is not short: of one that a slot does not take, or that
// is better announced. It gives a request where the message is not done; without ok nothing has happened. A
// message that was withdrawn, as its request tells, is to be sent again.
func (s *Sends) sendLongLocked(p *peer, env envelope, buf []byte) (r *request, ok bool) {
	s.e.mu.assertHeld()
	if len(buf) > p.eagerLimit {
		if s.canAnnounceDirectLocked(p) {
			return s.sendAnnouncedLocked(p, env, buf)
		}
		return nil, false
	}
	if p.unawaited.skip > 0 {
		p.unawaited.skip--
	} else if p.ch.AllConsumed() && s.canAnnounceDirectLocked(p) {
		if r, ok = s.sendAnnouncedLocked(p, env, buf); ok {
			if r == nil {
				p.unawaited.inARow = 0
				return nil, true
			}
			p.unawaited.inARow = min(p.unawaited.inARow+1, maxUnawaited)
			p.unawaited.skip = 1<<p.unawaited.inARow - 1
			if !r.completed() {
				s.e.Cancels.cancelLocked(r, nil)
			}
			return r, true
		}
	}
	return nil, p.canSendEager(len(buf)) && s.sendEagerLocked(p, env, buf, 0)
}

// canAnnounceDirectLocked tells whether nothing keeps a message from being announced now, and its sender from
// waiting for its FIN alone.
func (s *Sends) canAnnounceDirectLocked(p *peer) bool {
	s.e.mu.assertHeld()
	return p.state == peerOpen && p.polled && !p.sendPending() && s.e.waiting.spinTime > 0 &&
		!s.e.completionHandler.active() && s.e.stopped == nil && !s.e.failures.noted.Load()
}

// sendAnnouncedLocked announces a message and waits a short while for its end. It gives no request where the
// message is done; without ok nothing has happened.
func (s *Sends) sendAnnouncedLocked(p *peer, env envelope, buf []byte) (r *request, ok bool) {
	s.e.mu.assertHeld()
	id, sent, err := p.fabric.sender.TrySendRTS(p.ch, env, buf, directToken, false)
	if !sent || err != nil {
		return nil, false // what is wrong the attempt with a request finds too
	}
	s.e.hook.sent(env, p.rank, len(buf))
	s.e.recorder.Note(recorder.Announced, env.Context, p.rank, int(env.Tag), len(buf))
	p.stats.Rendezvous++
	p.stats.RendezvousBytes += uint64(len(buf))
	if p.ch.Due() == channel.DueResize {
		s.e.progress.deferPeer(p) // the message may be out but for what has the peer look at it
	} else if rendezvous.EndsInWord(id) && s.awaitFINLocked(p, len(buf)) {
		return nil, true
	}
	r = s.e.Requests.get()
	r.contiguous(buf)
	r.kind, r.rank = kindSend, p.rank
	r.msg.Start(env, r.vec)
	r.msg.MarkAnnounced()
	r.msg.Skip()
	r.setPeer(p)
	if p.state != peerOpen { // it was given up meanwhile, and the announcement with it
		s.e.Requests.complete(r, p.cause)
		return r, true
	}
	r.openTransfers, r.announcement = 1, id+1
	p.fabric.sender.SetToken(id, r.token())
	s.retryIfQueueFullLocked(p)
	return r, true
}

// awaitFINLocked looks for the FIN of the direct send for a short while, and takes it. It stops as soon as
// anybody wants the lock, or something else has come.
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
			last = true // the peer's next message comes after its FIN
			continue
		}
		sys.AwaitLoads()
	}
	return false
}

// anyReady tells whether something is in the ring of a peer that is polled.
func (f *fabric) anyReady() bool {
	for _, p := range f.polled {
		if p.ch.Ready() {
			return true
		}
	}
	return false
}

// takeFINsLocked ends the announcements whose FINs have come as words.
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
