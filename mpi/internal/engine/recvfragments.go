package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/sys"
)

// recvFragmentsLocked takes a message in fragments whose FIRST, with this body, has arrived, if it has the
// envelope env and fits in buf. If a fragment does not arrive soon, the receive goes on with a request,
// begun.
func (v *Recvs) recvFragmentsLocked(p *peer, env envelope, body, buf []byte) (bytes int, ok bool) {
	v.e.mu.assertHeld()
	got, total, payload, err := eager.ParseFirst(body)
	if err != nil || got != env || total > len(buf) || !p.polled {
		return 0, false
	}
	at := copy(buf, payload)
	p.ch.Release()
	for at < total {
		n := v.recvFragmentLocked(p, buf[at:total])
		if n == 0 {
			v.continueLocked(p, env, buf, at, total)
			return 0, false
		}
		at += n
	}
	v.copyBudget -= total
	// The answer to a message for which this rank has waited carries credit. Without one, so little of the
	// ring is unadvertised that CREDIT can wait for the next pass.
	if v.e.hub.sleepers.owned.Load() {
		v.progressAfterRecvLocked(p)
	} else if p.workPending() {
		v.e.progress.deferPeer(p)
	}
	v.e.recorder.NoteExpected(total)
	v.e.hook.received(env.Context, p.rank, env.Tag, total, v.began)
	return total, true
}

// recvFragmentLocked copies the next fragment of a message to the beginning of buf, if it arrives soon, and
// returns its length. It returns 0 if something else has arrived, and does not take that.
func (v *Recvs) recvFragmentLocked(p *peer, buf []byte) int {
	v.e.mu.assertHeld()
	for range min(maxRingPolls, v.e.waiting.maxLooks) {
		if p.ch.Ready() {
			kind, body, there, err := v.nextDirectLocked(p)
			if there && kind == channel.More && len(body) > 0 && len(body) <= len(buf) {
				began := p.copies.beginSample(len(body))
				n := copy(buf, body)
				if began != 0 {
					v.e.endSample(p, &p.copies.out, began, n)
				}
				p.ch.Release()
				if n < len(buf) && p.ch.CreditMayBeDue() && p.ch.Due() >= channel.DueNow {
					v.e.progress.advancePeer(p)
				}
				return n
			}
			if there || err != nil || p.state != peerOpen {
				return 0
			}
		}
		if v.e.mu.wanted() {
			return 0
		}
		sys.AwaitLoads()
	}
	return 0
}

// continueLocked makes a request of a receive that has taken the first bytes of its message directly.
func (v *Recvs) continueLocked(p *peer, env envelope, buf []byte, received, total int) {
	v.e.mu.assertHeld()
	r := v.e.Requests.get()
	r.contiguous(buf)
	r.kind, r.rank = kindRecv, p.rank
	r.posted.Context, r.posted.Source, r.posted.Tag = env.Context, int32(p.rank), env.Tag
	v.matchArrivingLocked(p, r, env, total)
	r.received = received
	v.begun = r
	if p.state != peerOpen {
		v.e.Requests.complete(r, p.cause)
		return
	}
	p.incoming = incoming{r: r, remaining: total - received}
}
