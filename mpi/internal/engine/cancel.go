package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Both ends of a send take part in its cancellation once part of it has left this rank: WITHDRAW asks the
// receiver to release the announced message. If no receive has matched the message, the receiver drops it and
// says so, and the send is cancelled; otherwise the send completes as usual. So both ends see the same
// outcome, and the send ends soon whatever the receiver's program does: if a matched probe has taken the
// message, the engine there fetches its bytes (matchedprobe.go).

// cancelState is how far the cancellation of a send has come.
type cancelState uint8

const (
	cancelNone      cancelState = iota // not requested; left by Cancel or a Canceller
	cancelWanted                       // requested while part of the message is unsent; left when all is sent
	withdrawSent                       // WITHDRAW was sent; the peer ends the announcements in either case
	withdrawGranted                    // the peer has released the message; final
)

// Cancels cancels operations. It has no state of its own: the request has the state of its cancellation.
//
// Invariants, under the lock: an operation is cancelled only while no other has matched it, and both ends see
// the same outcome; its request completes when its buffer is free, never before.
type Cancels struct {
	e *Engine
}

// register registers the handlers for the messages by which a send is withdrawn.
func (n *Cancels) register(t *router) {
	t.onMessage(channel.ATS, n.onATS)
	t.onMessage(channel.Withdraw, n.onWithdraw)
}

// Cancel cancels a send or a receive that has not been matched. Its request completes with Status.Cancelled
// set. A matched operation completes as if Cancel had not been called. Cancel of a send does not block;
// Cancel of a receive returns when nothing more is placed in its buffer. The caller must wait for the request
// in any case.
func (n *Cancels) Cancel(h Request) error {
	e := n.e
	if h == (Request{}) || h == Null {
		return nil
	}
	e.mu.Lock()
	r := e.Requests.find(h)
	if r == nil {
		e.mu.Unlock()
		return errUsed
	}
	if !r.completed() {
		n.cancelLocked(r, nil)
	}
	underWay := r.kind == kindRecv && !r.completed()
	e.mu.Unlock()
	if underWay {
		at := func(int) Request { return h }
		e.waiting.waitUntil(1, at, func() bool { return e.waiting.anyDoneLocked(1, at) })
	}
	return nil
}

// cancelLocked cancels an operation that is not complete, or begins to. The request of a cancelled operation
// completes with cause; if cause is nil, as Cancel says.
func (n *Cancels) cancelLocked(r *request, cause error) {
	n.e.mu.assertHeld()
	switch {
	case r.kind == kindCollective:
		if cause != nil { // MPI has no Cancel of a collective
			n.e.Collectives.failLocked(r.collective, cause)
		}
	case r.kind == kindOneSided:
		if cause != nil { // MPI has no Cancel of an operation on a window; it goes on by itself
			n.e.Windows.letGo(r)
			n.e.Requests.complete(r, cause)
		}
	case n.cancelLocallyLocked(r):
		r.status.Cancelled = cause == nil
		n.e.Requests.complete(r, cause)
	case r.unexpected != nil: // a Message of this rank holds it
		n.e.Probes.copyToMessage(r)
	case r.kind == kindSend && r.cancel == cancelNone:
		r.cause, r.observed, r.cancel = cause, true, cancelWanted
		if p := r.peer; r.msg.Started() && r.msg.Done() {
			if err := n.sendWithdrawLocked(p, r); err != nil {
				n.e.failures.failPeer(p, err)
			}
		}
	}
}

// cancelLocallyLocked removes an operation of which nothing has left this rank from the list or table in
// which it waits; the caller completes it. It reports false, and does nothing, if it is too late for that.
func (n *Cancels) cancelLocallyLocked(r *request) bool {
	n.e.mu.assertHeld()
	switch {
	case r.kind == kindRecv:
		return n.e.matching.RemovePosted(&r.posted) || n.e.Choices.remove(r)
	case r.unexpected != nil:
		a := r.unexpected
		if !n.e.matching.RemoveUnexpected(&a.match) {
			return false
		}
		n.e.unexpected.release(a)
		n.e.hook.withdrawn(r.msg.Envelope, n.e.rank)
		return true
	case r.peer != nil:
		return r.peer.removeQueued(r)
	}
	return false
}

// sendWithdrawLocked sends WITHDRAW for a message that has been sent, and whose announcements have not all
// ended. After an error the caller fails the peer.
func (n *Cancels) sendWithdrawLocked(p *peer, r *request) error {
	n.e.mu.assertHeld()
	r.cancel = withdrawSent
	err := p.fabric.sender.Withdraw(p.ch, r.announcement-1)
	n.e.progress.deferUnsent(p)
	return err
}

// onATS takes ATS: an announcement has ended.
func (n *Cancels) onATS(p *peer, body []byte) error {
	ats, err := rendezvous.ParseATS(body)
	if err != nil {
		return err
	}
	token, err := p.fabric.sender.OnATS(p.ch, ats)
	if err != nil {
		return err
	}
	r := n.e.Requests.byToken(token)
	if ats.Withdrawn && r != nil {
		if r.cancel != withdrawSent && r.cancel != withdrawGranted {
			return fmt.Errorf("%w: the peer has let go of announcement %#x, which it was not asked to",
				transport.ErrProtocol, ats.ID)
		}
		r.cancel = withdrawGranted
	}
	n.e.Sends.announcementEndedLocked(r)
	return nil
}

// setOutcomeLocked sets the outcome of a send for which cancellation was requested, as it completes.
func (n *Cancels) setOutcomeLocked(r *request) {
	n.e.mu.assertHeld()
	if r.cancel == withdrawGranted {
		n.e.hook.withdrawn(r.msg.Envelope, r.rank)
	}
	switch {
	case r.err != nil && r.cause != nil:
		r.err = r.annotated(fmt.Errorf("%w, and %w", r.cause, r.err))
	case r.err == nil && r.cancel == withdrawGranted:
		r.err, r.status.Cancelled = r.annotated(r.cause), r.cause == nil
	}
}

// recordAnnouncement stores where the announced bytes of an unexpected message are.
func (p *peer) recordAnnouncement(a *unexpectedMessage, s rendezvous.Source) {
	a.parts = append(a.parts, part{source: s, announced: true})
	if a.announcement == 0 {
		if p.announcedUnexpected == nil {
			p.announcedUnexpected = map[uint64]*unexpectedMessage{}
		}
		a.announcement = s.ID + 1
		p.announcedUnexpected[s.ID] = a
	}
}

// onWithdraw takes WITHDRAW: the message is released if no receive has matched it. If it is not among those
// that wait, one has.
func (n *Cancels) onWithdraw(p *peer, body []byte) error {
	w, err := rendezvous.ParseWithdraw(body)
	if err != nil {
		return err
	}
	a := p.announcedUnexpected[w.ID]
	switch {
	case a == nil:
		return nil
	case a.incomplete:
		return fmt.Errorf("%w: a message was withdrawn before its end", transport.ErrProtocol)
	case !n.e.matching.RemoveUnexpected(&a.match):
		n.e.Probes.fetchForMessage(a)
		return nil
	}
	return n.discardAnnouncedLocked(p, a)
}

// discardAnnouncedLocked drops a message that was removed from the table, and tells its sender.
func (n *Cancels) discardAnnouncedLocked(p *peer, a *unexpectedMessage) error {
	n.e.mu.assertHeld()
	var sources []rendezvous.Source
	for i := range a.parts {
		if a.parts[i].announced {
			sources = append(sources, a.parts[i].source)
		}
	}
	n.e.unexpected.release(a)
	return p.fabric.receiver.Discard(p.ch, sources)
}

// removeQueued removes a send of which nothing has left from the queue in which it waits for its peer.
func (p *peer) removeQueued(r *request) bool {
	if r.msg.Started() {
		return false
	}
	for i := p.head; i < len(p.queue); i++ {
		if p.queue[i] == r {
			copy(p.queue[p.head+1:], p.queue[p.head:i])
			p.dequeue()
			return true
		}
	}
	return false
}

// CancelAndFree frees a request of a larger call that has failed, so that the caller will not wait for it. It
// cancels a receive; if the message is already being read, it waits, since the buffer is in use until then. A
// send goes on by itself, and only reads its memory: CancelAndFree returns true if it is not complete.
func (n *Cancels) CancelAndFree(h Request) (goesOn bool) {
	e := n.e
	e.mu.Lock()
	r := e.Requests.find(h)
	switch {
	case r == nil:
	case r.completed() || r.kind == kindRecv && n.cancelLocallyLocked(r):
		e.Requests.collect(h, r)
	case r.kind == kindSend:
		goesOn, r.detached, r.observed = true, true, true
	default:
		e.mu.Unlock()
		e.waiting.wait(r)
		return false
	}
	e.mu.Unlock()
	return goesOn
}
