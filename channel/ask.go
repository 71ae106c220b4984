package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// A sender changes the phase of its direction by asking: ENLARGE or SHRINK is the last message in the old ring until the answer has
// landed in the sender's memory (E3, E7, E8, E11). Meanwhile nothing else goes into that ring, not even CREDIT; the other direction goes
// on as it was.

// askState is where a question is.
type askState uint8

const (
	askNothing askState = iota // no question; left by ask
	askPosted                  // the question is posted, its answer has not landed; left by the answer
	askAgain                   // a corrupt answer was here, and "say it again" found the send queue full; left by posting that
)

// asking is our question.
type asking struct {
	state  askState
	target shape
	question
	mirror *buffer // of the new ring
	land   *buffer // behind whose ring the answer lands; held
}

// body is the largest body that a slot of this shape carries.
func (s shape) body() int { return s.slot - overhead }

// phaseFor is the lowest phase above the present one whose slots take an element of n bytes with a head before it, and that
// has not been refused; -1 if there is none.
func (c *Channel) phaseFor(n, head int) int {
	for p := c.send.phase + 1; p < c.refused; p++ {
		if slot := c.phases[p]; n <= min(c.conf.limit(p, slot), slot-overhead-head) {
			return p
		}
	}
	return -1
}

// want has the channel ask for a ring of another phase as soon as it is the time. Until the answer nothing is sent.
func (c *Channel) want(phase int) error {
	c.wanted = phase
	c.pause()
	return c.ask()
}

// ask asks for what is wanted if it is the time.
//
// A question goes only when hardly anything is owed to us: when the peer owes less than a threshold, no CREDIT of its that must go is on the way or
// unread, but one for a lap. So CREDITs of two rings hardly add up, and the lines that are kept for them are enough (credit.go).
func (c *Channel) ask() error {
	s := &c.send
	if c.wanted < 0 || int(s.sent-s.freed) >= s.mirror.threshold() || s.large != nil && s.large.owing(s) {
		return nil
	}
	s.reserved = 0
	if !s.seat(1, 0) {
		return nil // it cannot be, with so few lines unread
	}
	phase := c.wanted
	target := geometry(c.phases, phase)
	// The memory comes first: what cannot be had here need not be asked for.
	mirror, err := c.ringFor(target, transport.LocalWrite)
	if err != nil {
		c.refusal(phase)
		c.wanted, c.paused = -1, false
		return nil
	}
	kind := enlarge
	if phase < s.phase {
		kind = shrink
	}
	land := c.recv.buffer
	q := question{phase, land.Key(), uint64(land.landing()), random()}
	wipe(land.Bytes()[land.landing():])
	q.put(s.ring[s.pos*lineSize+bodyAt:])
	switch err := c.post(kind, questionLen, 1, false); {
	case errors.Is(err, transport.ErrQueueFull):
		return mirror.release()
	case err != nil:
		return errors.Join(err, mirror.release())
	}
	land.holds++
	c.asking = asking{askPosted, target, q, mirror, land}
	c.wanted = -1
	c.pause()
	if kind == enlarge {
		c.stats.Asked++
	} else {
		c.stats.ShrinksAsked++
	}
	return nil
}

// ringFor makes the memory for the ring that another phase needs: none where the first ring stays, and nothing else is wanted.
func (c *Channel) ringFor(target shape, access transport.Access) (*buffer, error) {
	if c.conf.KeepSmall && target.phase == 0 {
		return nil, nil
	}
	return c.newBuffer(target, access, target.phase == 0)
}

// settle goes on with what the channel pauses for: a marker that is due, or a change of phase, where it asks, or hears the answer.
func (c *Channel) settle() error {
	if c.send.markerDue() {
		if err := c.mark(false); err != nil || c.send.markerDue() {
			return err
		}
	}
	if c.asking.state != askNothing {
		return c.hear()
	}
	return c.ask()
}

// hear looks whether the answer to our question has landed, and follows it.
func (c *Channel) hear() error {
	a := &c.asking
	if a.state == askAgain {
		return c.sayAgain()
	}
	line := a.land.Bytes()[a.land.landing():][:answerLen]
	head, tail := landed(line, a.generation)
	if head && !tail {
		c.stats.HeadsNoTail++
	}
	if !tail {
		return nil
	}
	got, err := parseAnswer(line, c.phases)
	switch {
	case errors.Is(err, errCorrupt):
		// The peer is asked again only now that this answer is there, and each question has one answer: so none is ever on its
		// way when the memory behind the ring goes.
		c.stats.Corrupt++
		wipe(line)
		a.state = askAgain
		return c.sayAgain()
	case err != nil:
		return err
	case got.ack && (got.generation == 0) != (c.conf.KeepSmall && got.shape.phase == 0):
		return fmt.Errorf("%w: ACK of phase %d with ring %#x", transport.ErrProtocol, got.shape.phase, got.generation)
	case got.shape != a.target:
		return fmt.Errorf("%w: asked for phase %d, answered with %d", transport.ErrProtocol, a.target.phase, got.shape.phase)
	}
	mirror, target := a.mirror, a.target
	err = a.land.release()
	*a = asking{}
	c.paused = false
	if !got.ack {
		c.refusal(target.phase)
		return errors.Join(err, mirror.release())
	}
	if target.phase > c.send.phase {
		c.stats.Acked++
	} else {
		c.stats.Shrunk++
	}
	if c.conf.KeepSmall {
		c.quiet = quiet{largest: target.body()}
		return errors.Join(err, c.changeLarge(mirror, got))
	}
	old := c.send.mirror
	c.send.change(mirror, got, c.conf.limit(target.phase, target.slot))
	c.quiet = quiet{largest: target.body()} // as if the new slots had been needed: a Tick may come before the message that they are for
	// The peer has read all that was written out of the old mirror: nothing of it can be asked for again.
	return errors.Join(err, old.release())
}

// refusal remembers that a phase cannot be had. To be refused a smaller one forbids nothing.
func (c *Channel) refusal(phase int) {
	c.stats.Refused++
	if phase > c.send.phase {
		c.refused = min(c.refused, phase)
	}
}

// sayAgain asks for the same answer once more by a Send of no bytes: it needs no ring.
func (c *Channel) sayAgain() error {
	err := c.qp.PostSend(&transport.SendWR{Op: transport.OpSend})
	if errors.Is(err, transport.ErrQueueFull) {
		return nil
	}
	if err == nil {
		c.asking.state = askPosted
	}
	return err
}
