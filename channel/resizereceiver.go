package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// lastReply is our reply to the peer's last resize request, kept so that it can be sent again (E6, E7).
type lastReply struct {
	given         bool // there has been a request
	unsent        bool // the send queue had no room for it
	asked         bool // the peer has asked for it again, and is to be told when it has all of them
	resizeRequest      // where it goes
	resizeReply

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
}

// onRequest takes a resize request that is the next message in the ring; all before it has been consumed. The
// memory is reserved first, so that after the reply nothing can fail; what cannot be had is refused, and
// everything stays as it is.
func (c *Channel) onRequest(k Kind, body []byte) error {
	r := &c.recv
	q, err := parseRequest(body, len(c.phases))
	if err != nil {
		return err
	}
	present := r.phase
	if k == enlarge && q.phase <= present || k == shrink && q.phase >= present || q.generation == 0 {
		return fmt.Errorf("%w: %v to phase %d in phase %d", transport.ErrProtocol, k, q.phase, present)
	}
	c.reply.given, c.reply.resizeRequest = true, q
	target := geometry(c.phases, q.phase)
	fresh, err := c.ringFor(target, ringRights)
	if err != nil {
		c.stats.RequestsRefused++
		c.reply.resizeReply = resizeReply{shape: target}
		r.advance(1)
		return c.sendReply()
	}
	if c.conf.KeepSmall {
		return c.grantLargeRing(target, fresh)
	}
	old, generation := r.buffer, random()
	r.consumed++
	r.change(fresh, generation)
	r.advertised = r.consumed // the reply says so
	c.reply.resizeReply = resizeReply{ack: true, shape: target, key: fresh.Key(), generation: generation}
	// The request was the last message of the old ring, and all before it has been consumed: nothing is in
	// flight to it but, perhaps, the reply to a request of our own (docs/internals/adr/0007).
	return errors.Join(c.sendReply(), old.release())
}

// grantLargeRing replaces the large ring, or gives it up. The first ring stays, and the request is a message
// in it like others.
func (c *Channel) grantLargeRing(target shape, fresh *buffer) error {
	r := &c.recv
	a := resizeReply{ack: true, shape: target}
	if fresh != nil {
		a.key, a.generation = fresh.Key(), random()
	}
	old := r.large.buffer
	r.advance(1)
	r.phase, r.largeUnadvertised = target.phase, 0
	r.large.change(fresh, a.generation)
	c.reply.resizeReply = a
	return errors.Join(c.sendReply(), old.release())
}

// ResentImm is the immediate of a Write that carries a reply which the peer has asked for again, for
// ReplyResent.
const ResentImm = 1<<32 - 1

// RetransmitReply handles the peer's Send of no bytes: this end's reply is corrupt or overdue, and the peer
// asks for it again. The Send is delivered, so the request is in the ring; nothing follows it there. If there
// is something unread, the request is still among it, and its reply will be the answer. The reply before it
// must not go: its reply slot may be gone.
func (c *Channel) RetransmitReply() error {
	p := &c.reply
	unread := c.recv.unread()
	if p.asked || !p.given && !unread {
		return fmt.Errorf("%w: a resize reply is asked for again, and there was none, or it is asked for "+
			"already", transport.ErrProtocol)
	}
	p.asked = true
	if unread {
		return nil
	}
	c.stats.RepliesResent++
	return c.sendReply()
}

// unread reports whether a message is in the ring that has not been released.
func (r *recvRing) unread() bool {
	if len(r.ring) == 0 {
		return false
	}
	p := r.cursor
	_, _, whole := r.find(p)
	if !whole && p.pos > 0 {
		p.wrap()
		_, _, whole = r.find(p)
	}
	return whole
}

// sendReply writes the reply into the peer's memory, or leaves that to Progress.
func (c *Channel) sendReply() error {
	p := &c.reply
	from := c.recv.buffer
	at := from.replyOffset() + lineSize
	p.resizeReply.put(from.Bytes()[at:], p.resizeRequest.generation)
	p.local[0] = transport.SGE{MR: from.MR, Offset: at, Length: replyLen}
	p.remote[0] = transport.Segment{Key: p.resizeRequest.key, Offset: p.resizeRequest.offset,
		Length: replyLen}
	p.wr = transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline, Local: p.local[:],
		Remote: p.remote[:]}
	if p.asked {
		p.wr.Op, p.wr.Imm = transport.OpWriteImm, ResentImm
	}
	err := c.qp.PostSend(&p.wr)
	if p.unsent = errors.Is(err, transport.ErrQueueFull); p.unsent {
		return nil
	}
	p.asked = false
	return err
}
