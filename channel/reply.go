package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// reply is our answer to the peer's last question, kept so that it can be given again (E6, E7).
type reply struct {
	given    bool // there has been a question
	due      bool // it is to be posted
	question      // where it goes
	answer

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
}

// asked takes a question that stands next in the ring; all before it has been read. The memory is reserved first, so that after the
// answer nothing can fail; what cannot be had is refused, and everything stays as it is.
func (c *Channel) asked(k Kind, body []byte) error {
	r := &c.recv
	q, err := parseQuestion(body, len(c.phases))
	if err != nil {
		return err
	}
	present := r.phase
	if k == enlarge && q.phase <= present || k == shrink && q.phase >= present || q.generation == 0 {
		return fmt.Errorf("%w: %v to phase %d in phase %d", transport.ErrProtocol, k, q.phase, present)
	}
	c.reply.given, c.reply.question = true, q
	target := geometry(c.phases, q.phase)
	fresh, err := c.ringFor(target, transport.RemoteWrite)
	if err != nil {
		c.stats.Refusals++
		c.reply.answer = answer{shape: target}
		r.advance(1)
		return c.sayReply()
	}
	if c.conf.KeepSmall {
		return c.grantLarge(target, fresh)
	}
	old, generation := r.buffer, random()
	r.consumed++
	r.change(fresh, generation)
	r.told = r.consumed // the answer says it
	c.reply.answer = answer{ack: true, shape: target, key: fresh.Key(), generation: generation}
	// The question was the last message of the old ring, and all before it has been read: nothing is on its way there, unless it be
	// the answer to a question of our own (docs/adr/0007).
	return errors.Join(c.sayReply(), old.release())
}

// grantLarge exchanges the large ring, or gives it up. The first ring stays, and the question is a line of it like others.
func (c *Channel) grantLarge(target shape, fresh *buffer) error {
	r := &c.recv
	a := answer{ack: true, shape: target}
	if fresh != nil {
		a.key, a.generation = fresh.Key(), random()
	}
	old := r.large.buffer
	r.advance(1)
	r.phase, r.owed = target.phase, 0
	r.large.change(fresh, a.generation)
	c.reply.answer = a
	return errors.Join(c.sayReply(), old.release())
}

// AskedAgain takes the peer's Send of no bytes: its answer was corrupt, and it wants the same once more.
func (c *Channel) AskedAgain() error {
	if !c.reply.given {
		return fmt.Errorf("%w: an answer is asked for again, and none was given", transport.ErrProtocol)
	}
	c.stats.AnswersRepeated++
	return c.sayReply()
}

// sayReply writes the answer into the peer's memory, or leaves it to Progress.
func (c *Channel) sayReply() error {
	p := &c.reply
	from := c.recv.buffer
	at := from.landing() + lineSize
	p.answer.put(from.Bytes()[at:], p.question.generation)
	p.local[0] = transport.SGE{MR: from.MR, Offset: at, Length: answerLen}
	p.remote[0] = transport.Segment{Key: p.question.key, Offset: p.question.offset, Length: answerLen}
	p.wr = transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline, Local: p.local[:], Remote: p.remote[:]}
	err := c.qp.PostSend(&p.wr)
	p.due = errors.Is(err, transport.ErrQueueFull)
	if p.due {
		return nil
	}
	return err
}
