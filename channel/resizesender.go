package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// A sender changes the phase of its direction by a resize request. ENLARGE or SHRINK is the last message in
// the old ring until the reply has been placed in the sender's memory (E3, E7, E8, E11). Meanwhile nothing
// else is sent in that ring, not even CREDIT; the other direction continues.

// requestState is the state of our resize request.
type requestState uint8

const (
	requestNone requestState = iota // there is none; left by sendRequest
	// the request is posted, and there is no reply yet; left by the reply, or when it is overdue
	requestPosted
	// the reply is corrupt or overdue, and the send queue had no room to request it again; left by that
	// request
	requestRetransmitDue
	// the reply was requested again: the reply slot is ignored until the peer's answer to that has been
	// delivered, because replies may be in flight until then; left by ReplyResent
	requestAskedAgain
)

// Ticks of a request after which its reply is overdue, and after which the peer has failed.
const (
	overdueTicks = 2
	failedTicks  = 4
)

// pendingRequest is our resize request.
type pendingRequest struct {
	state  requestState
	target shape
	resizeRequest
	mirror    *buffer // of the new ring
	replySlot *buffer // for the reply; this holds a reference
	ticks     int     // since it was posted
}

// resizer changes the phase in which a channel sends. It owns the resize request, and the demand on which it
// is based.
type resizer struct {
	c           *Channel
	demand      demand
	pending     pendingRequest
	wantedPhase int // phase to request as soon as credits allow; -1 for none
	// No messages may be sent. A LARGE message that the send queue had no room for goes first, alone
	// (large.go). Otherwise a resize request is to be sent: before it, CREDIT may be sent, and after it
	// nothing.
	paused       bool
	refusedPhase int // the lowest phase that the peer has refused; the number of phases if none
}

// pause sets paused.
func (r *resizer) pause() { r.paused, r.c.send.freeAhead, r.c.send.freeAfterWrap = true, 0, 0 }

// phaseForSize returns the lowest phase above the present one whose slots hold an element of n bytes after an
// upper-layer header of head bytes, and that has not been refused; -1 if there is none.
func (r *resizer) phaseForSize(n, head int) int {
	c := r.c
	for p := c.send.phase + 1; p < r.refusedPhase; p++ {
		if slot := c.phases[p]; n <= min(c.conf.limit(p, slot), slot-overhead-head) {
			return p
		}
	}
	return -1
}

// requestPhase requests a ring of another phase as soon as the credits allow it. Until the request is posted,
// only CREDIT may be sent, and then nothing until the reply.
func (r *resizer) requestPhase(phase int) error {
	r.wantedPhase = phase
	r.pause()
	return r.sendRequest()
}

// creditsAllowRequest reports whether a resize request may be sent: fewer lines than a threshold are not yet
// credited. Then the CREDITs of two rings do not add up, and the lines reserved for CREDIT are enough
// (docs/internals/spec/channel.md).
func (r *resizer) creditsAllowRequest() bool {
	s := &r.c.send
	return int(s.sent-s.credited) < s.mirror.threshold() && (s.large == nil || !s.large.creditImminent(s))
}

// sendRequest sends the request for the wanted phase if the credits allow it.
func (r *resizer) sendRequest() error {
	c := r.c
	s := &c.send
	if r.wantedPhase < 0 || !r.creditsAllowRequest() {
		return nil
	}
	s.reserved = 0
	if !s.reserveLines(1, 0) {
		return nil // impossible with so few lines unread
	}
	phase := r.wantedPhase
	target := geometry(c.phases, phase)
	// Allocate the memory first: without it no request is needed.
	mirror, err := c.memory.ringOf(target, transport.LocalWrite)
	if err != nil {
		r.onRefused(phase)
		r.wantedPhase, r.paused = -1, false
		return nil
	}
	kind := enlarge
	if phase < s.phase {
		kind = shrink
	}
	slot := c.recv.buffer
	q := resizeRequest{phase, slot.Key(), uint64(slot.replyOffset()), random()}
	clearFlags(slot.Bytes()[slot.replyOffset():])
	q.put(s.ring[s.pos*lineSize+bodyAt:])
	switch err := c.post(kind, requestLen, 1, false); {
	case errors.Is(err, transport.ErrQueueFull):
		return mirror.release()
	case err != nil:
		return errors.Join(err, mirror.release())
	}
	slot.refs++
	r.pending = pendingRequest{requestPosted, target, q, mirror, slot, 0}
	r.wantedPhase = -1
	r.pause()
	if kind == enlarge {
		c.stats.EnlargesSent++
	} else {
		c.stats.ShrinksSent++
	}
	return nil
}

// progressResize continues the work for which the channel is paused: an unsent LARGE message (large.go), or a
// resize request or its reply.
func (r *resizer) progressResize() error {
	c := r.c
	if c.send.descriptorUnsent() {
		if err := c.send.large.sendDescriptor(c, false); err != nil || c.send.descriptorUnsent() {
			return err
		}
	}
	if r.pending.state != requestNone {
		return r.pollReply()
	}
	return r.sendRequest()
}

// replyArrived reports whether the reply to our request has been placed.
func (r *resizer) replyArrived() bool {
	p := &r.pending
	if p.state != requestPosted {
		return false
	}
	_, tail := replyFlags(p.replySlot.Bytes()[p.replySlot.replyOffset():], p.generation)
	return tail
}

// pollReply applies the reply to our request if it has been placed.
func (r *resizer) pollReply() error {
	c := r.c
	a := &r.pending
	switch a.state {
	case requestRetransmitDue:
		return r.requestRetransmit()
	case requestAskedAgain:
		return nil
	}
	line := a.replySlot.Bytes()[a.replySlot.replyOffset():][:replyLen]
	if !r.lookForTail(line) {
		return nil
	}
	got, err := parseReply(line, c.phases)
	switch {
	case errors.Is(err, errCorruptReply):
		c.stats.CorruptReplies++
		clearFlags(line)
		a.state = requestRetransmitDue
		return r.requestRetransmit()
	case err != nil:
		return err
	case got.ack && (got.generation == 0) != (c.conf.KeepSmall && got.shape.phase == 0):
		return fmt.Errorf("%w: ACK of phase %d with ring %#x", transport.ErrProtocol, got.shape.phase,
			got.generation)
	case got.shape != a.target:
		return fmt.Errorf("%w: requested phase %d, the reply is for %d", transport.ErrProtocol,
			a.target.phase, got.shape.phase)
	}
	mirror, target := a.mirror, a.target
	err = a.replySlot.release()
	*a = pendingRequest{}
	r.paused = false
	if !got.ack {
		r.onRefused(target.phase)
		return errors.Join(err, mirror.release())
	}
	if target.phase > c.send.phase {
		c.stats.EnlargesGranted++
	} else {
		c.stats.ShrinksGranted++
	}
	if c.conf.KeepSmall {
		r.demand = demand{largest: target.body()}
		return errors.Join(err, c.send.large.adopt(c, mirror, got))
	}
	old := c.send.mirror
	c.send.change(mirror, got, c.conf.limit(target.phase, target.slot))
	// as if the new slots had been used: ShrinkIfIdle may be called before the message that needs them is
	// sent
	r.demand = demand{largest: target.body()}
	// The peer has consumed everything that was written from the old mirror: none of it is in flight.
	return errors.Join(err, old.release())
}

// lookForTail reports whether the reply to our request has arrived completely. If only its head has, it polls
// several times.
func (r *resizer) lookForTail(line []byte) bool {
	for range r.c.conf.tailLooks() {
		head, tail := replyFlags(line, r.pending.generation)
		if tail || !head {
			return tail
		}
		r.c.stats.HeadsWithoutTail++
	}
	return false
}

// onRefused notes that a phase was refused. Refusing a smaller phase has no effect.
func (r *resizer) onRefused(phase int) {
	r.c.stats.ResizesRefused++
	if phase > r.c.send.phase {
		r.refusedPhase = min(r.refusedPhase, phase)
	}
}

// ReplyTick is the channel's clock. Call it once per half of the time after which the reply to a resize
// request is overdue. An overdue reply is requested again; if it does not arrive in the same time again, the
// error says that the peer has failed (E7).
func (r *resizer) ReplyTick() error {
	p := &r.pending
	if p.state == requestNone || r.replyArrived() {
		return nil
	}
	switch p.ticks++; {
	case p.ticks >= failedTicks:
		return fmt.Errorf("%w: the reply to a request for buffers of phase %d is overdue, and did not "+
			"arrive after it was requested again", transport.ErrPeerLost, p.target.phase)
	case p.ticks == overdueTicks && p.state == requestPosted:
		r.c.stats.OverdueReplies++
		p.state = requestRetransmitDue
		return r.requestRetransmit()
	}
	return nil
}

// ReplyResent handles a Write with the immediate ResentImm, the peer's answer to a request to resend a reply.
// It is delivered, so every reply to the request has been placed, and the memory of the reply slot may be
// released after it. Call Progress afterwards.
func (r *resizer) ReplyResent() error {
	if r.pending.state != requestAskedAgain {
		return fmt.Errorf("%w: a resize reply is resent that was not requested again", transport.ErrProtocol)
	}
	r.pending.state = requestPosted
	return nil
}

// requestRetransmit requests the same reply again, by a Send without bytes, which needs no ring.
func (r *resizer) requestRetransmit() error {
	err := r.c.qp.PostSend(&transport.SendWR{Op: transport.OpSend})
	if errors.Is(err, transport.ErrQueueFull) {
		return nil
	}
	if err == nil {
		r.pending.state = requestAskedAgain
	}
	return err
}
