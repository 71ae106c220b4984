package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
)

// sendThroughRingLocked does a blocking send of a message longer than shortLimit through the ring. If ok is
// false it did nothing. If r is nil the send is complete; otherwise the caller waits for r.
func (s *Sends) sendThroughRingLocked(p *peer, env envelope, buf []byte) (r *request, ok bool) {
	s.e.mu.assertHeld()
	return s.copyThroughRingLocked(p, env, buf, eager.FragmentLen(len(buf), copycost.Fragment(len(buf))))
}

// streamThroughRingLocked does a nonblocking send of a message longer than eagerLimit through the ring, if
// costs say so and the receiver keeps up. If ok is false it did nothing. If r is nil the send is complete.
func (s *Sends) streamThroughRingLocked(p *peer, env envelope, buf []byte) (r *request, ok bool) {
	s.e.mu.assertHeld()
	n := len(buf)
	if n > copycost.MaxStreamed || p.copies.streamed < 0 {
		return nil, false
	}
	for {
		if !s.canAnnounceDirectLocked(p) || p.refusesPayload(n) {
			return nil, false
		}
		if p.ch.LeavesRoom(n) {
			break
		}
		if !s.spinForCreditsLocked(p) {
			return nil, false
		}
	}
	if !p.copies.throughRing(n, p.copies.streamed) {
		return nil, false
	}
	if n > eager.MaxPayload(p.ch) {
		return s.sendThroughRingLocked(p, env, buf)
	}
	return s.copyThroughRingLocked(p, env, buf, n)
}

// copyThroughRingLocked sends a message through the ring in fragments of the given length, or as a whole if
// it is not longer. Its results are those of sendThroughRingLocked.
func (s *Sends) copyThroughRingLocked(p *peer, env envelope, buf []byte, length int) (r *request, ok bool) {
	s.e.mu.assertHeld()
	if length < len(buf) {
		fits := length <= eager.MaxPayload(p.ch)
		if !fits && !p.copies.growth.next() {
			return nil, false
		}
		if fits {
			p.copies.growth = backoff{}
		} else {
			p.copies.growth.failed() // the ring grows for this message, unless there is no memory
		}
		return s.sendFragmentsLocked(p, env, buf, length), true
	}
	if p.refusesPayload(len(buf)) || !s.sendEagerLocked(p, env, buf, 0) {
		return nil, false
	}
	return nil, true
}

// sendFragmentsLocked does a blocking send through the ring in fragments, so that a receiver that waits
// copies one while this rank copies the next. If the ring gets full and the receiver does not free it soon,
// the send goes on as any other of a vector. If r is nil the send is complete; otherwise the caller waits for
// r.
func (s *Sends) sendFragmentsLocked(p *peer, env envelope, buf []byte, length int) (r *request) {
	s.e.mu.assertHeld()
	first, at := false, 0
	if length <= eager.MaxPayload(p.ch) && !p.refusesPayload(len(buf)) {
		first, _ = s.first.TrySend(p.ch, env, len(buf)) // after an error, the request gets the same one
	}
	if first {
		s.e.hook.sent(env, p.rank, len(buf))
		for at < len(buf) {
			n, began := min(length, len(buf)-at), int64(0)
			if at == 0 {
				began = p.copies.beginRingSample(n)
			}
			if sent, err := eager.TrySendMore(p.ch, buf[at:at+n]); sent {
				s.e.endRingSample(p, began, n)
				at += n
			} else if err != nil || !s.pollForCreditsLocked(p) || p.refusesPayload(n) {
				break
			}
		}
		if at == len(buf) {
			p.stats.eager(len(buf))
			s.e.recorder.Note(recorder.Sent, env.Context, p.rank, int(env.Tag), len(buf))
			return nil
		}
	}
	p.stats.EagerBytes += uint64(at)
	r = s.e.Requests.get()
	r.vec = eager.Fragments(buf, length)
	if !first {
		s.startLocked(r, env, p.rank, false)
		return r
	}
	if !s.begunLocked(p, r, env, at/length) {
		return r
	}
	s.queueLocked(p, r)
	s.sendQueuedLocked(p) // what is left may have to be announced, for which no event comes
	return r
}

// pollForCreditsLocked polls for credits from a peer for a few µs, and reports whether any arrived. It makes
// no pass, so nothing else is sent to the peer: the next pass sends what has waited for that credit.
func (s *Sends) pollForCreditsLocked(p *peer) bool {
	s.e.mu.assertHeld()
	for range creditPolls {
		if p.ch.Ready() {
			given, blocked, err := p.ch.PollCredits()
			if p.ch.Due() != channel.DueNothing || given && p.awaitsCredit() {
				s.e.progress.deferPeer(p)
			}
			if err != nil {
				s.e.failures.failPeer(p, err)
			}
			if given || blocked || err != nil {
				return given && err == nil
			}
		}
		if s.e.mu.wanted() {
			break
		}
		sys.AwaitLoads()
	}
	return false
}

// creditPolls is how often pollForCreditsLocked polls.
const creditPolls = 200
