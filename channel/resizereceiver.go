package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// replier answers the peer's requests to change the phase in which it sends. It owns the last reply, and can
// send it again (E6, E7).
type replier struct {
	c             *Channel
	given         bool // a request was received
	unsent        bool // the send queue had no room for it
	asked         bool // the peer has requested it again, and must learn when no more replies follow
	resizeRequest      // where it goes
	resizeReply

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
}

// onRequest handles a resize request, the next message in the ring; everything before it has been consumed.
// It allocates the memory first, so that nothing can fail after the reply. If it cannot, it refuses, and
// nothing changes.
func (r *replier) onRequest(k Kind, body []byte) error {
	c, in := r.c, &r.c.recv
	q, err := parseRequest(body, len(c.phases))
	if err != nil {
		return err
	}
	present := in.phase
	if k == enlarge && q.phase <= present || k == shrink && q.phase >= present || q.generation == 0 {
		return fmt.Errorf("%w: %v to phase %d in phase %d", transport.ErrProtocol, k, q.phase, present)
	}
	r.given, r.resizeRequest = true, q
	target := geometry(c.phases, q.phase)
	fresh, err := c.memory.ringOf(target, ringRights)
	if err != nil {
		c.stats.RequestsRefused++
		r.resizeReply = resizeReply{shape: target}
		in.advance(1)
		return r.send()
	}
	if c.conf.KeepSmall {
		return r.grantLargeRing(target, fresh)
	}
	old, generation := in.buffer, random()
	in.consumed++
	in.change(fresh, generation)
	in.advertised = in.consumed // the reply says so
	r.resizeReply = resizeReply{ack: true, shape: target, key: fresh.Key(), generation: generation}
	// The request was the last message of the old ring, and everything before it has been consumed: nothing
	// is in flight to it except perhaps the reply to a request of our own (docs/internals/adr/0007).
	return errors.Join(r.send(), old.release())
}

// grantLargeRing replaces the large ring, or releases it. The first ring stays, and the request is an
// ordinary message in it.
func (r *replier) grantLargeRing(target shape, fresh *buffer) error {
	in := &r.c.recv
	a := resizeReply{ack: true, shape: target}
	if fresh != nil {
		a.key, a.generation = fresh.Key(), random()
	}
	old := in.large.buffer
	in.advance(1)
	in.phase, in.largeUnadvertised = target.phase, 0
	in.large.change(fresh, a.generation)
	r.resizeReply = a
	return errors.Join(r.send(), old.release())
}

// ResentImm is the immediate of a Write with a reply that the peer has requested again, for ReplyResent.
const ResentImm = 1<<32 - 1

// RetransmitReply handles the peer's Send without bytes: this end's reply is corrupt or overdue, and the peer
// requests it again. The Send is delivered, so the resize request is in the ring, and nothing follows it
// there. If anything is unread, the resize request is among it, and its reply will be the answer. The
// previous reply must not be sent: its reply slot may no longer exist.
func (c *Channel) RetransmitReply() error {
	r := &c.reply
	unread := c.recv.unread()
	if r.asked || !r.given && !unread {
		return fmt.Errorf("%w: a resize reply is requested again that was not sent, or was already "+
			"requested again", transport.ErrProtocol)
	}
	r.asked = true
	if unread {
		return nil
	}
	c.stats.RepliesResent++
	return r.send()
}

// unread reports whether the ring has a message that has not been released.
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

// send writes the reply into the peer's memory, or leaves that to Progress.
func (r *replier) send() error {
	from := r.c.recv.buffer
	at := from.replyOffset() + lineSize
	r.resizeReply.put(from.Bytes()[at:], r.resizeRequest.generation)
	r.local[0] = transport.SGE{MR: from.MR, Offset: at, Length: replyLen}
	r.remote[0] = transport.Segment{Key: r.resizeRequest.key, Offset: r.resizeRequest.offset,
		Length: replyLen}
	r.wr = transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline, Local: r.local[:],
		Remote: r.remote[:]}
	if r.asked {
		r.wr.Op, r.wr.Imm = transport.OpWriteImm, ResentImm
	}
	err := r.c.qp.PostSend(&r.wr)
	if r.unsent = errors.Is(err, transport.ErrQueueFull); r.unsent {
		return nil
	}
	r.asked = false
	return err
}
