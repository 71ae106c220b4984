package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// sendRing is the mirror of the peer's ring and where we are in it.
type sendRing struct {
	ring       []byte
	pos        int    // the next line to fill
	lines      int    // of the ring; 0 while there is none
	maxBody    int    // of a message
	generation uint64 // of the present lap
	sent       uint32 // lines, since the beginning, those skipped included
	freed      uint32 // lines that the peer has told us to have consumed
	reserved   int    // lines of the message being filled; 0 when there is none
	body       int    // its length

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	mr     transport.MR
}

func (s *sendRing) init(mr transport.MR, d Descriptor) {
	s.ring, s.mr = mr.Bytes(), mr
	s.lines, s.maxBody = d.Lines, d.SlotSize-overhead
	s.generation = d.Generation
	s.local[0].MR = mr
	s.remote[0].Key = d.Key
	s.wr = transport.SendWR{Op: transport.OpWrite, Local: s.local[:], Remote: s.remote[:]}
}

// MaxBody is the most that the body of one message can have, by the peer's slot size; 0 before Open.
func (c *Channel) MaxBody() int { return c.send.maxBody }

// Reserve gives the body of the next message, n bytes long, to be filled and then committed. It gives nil when the peer has
// given too few credits back, when the channel is not open, and for an n below 0 or above MaxBody, which will never do. The body
// holds old bytes. Only the last Reserve counts; one that is not committed costs nothing.
func (c *Channel) Reserve(n int) []byte { return c.reserve(n, controlLines+creditLines) }

// ReserveControl is Reserve for a control message, which may use lines that data leaves free.
func (c *Channel) ReserveControl(n int) []byte { return c.reserve(n, creditLines) }

func (c *Channel) reserve(n, keep int) []byte {
	s := &c.send
	s.reserved = 0
	if c.state != StateOpen || uint(n) > uint(s.maxBody) {
		return nil
	}
	need := linesOf(n)
	total := need
	rest := s.lines - s.pos
	if rest < need {
		total += rest
	}
	if total+keep > s.lines-int(s.sent-s.freed) {
		c.stats.Stalls++
		return nil
	}
	if total > need {
		if err := c.post(skip, 0, 1, rest, true); err != nil {
			c.stats.Stalls++ // the send queue is full: try again. Or the queue pair is broken: its completions tell
			return nil
		}
	}
	s.reserved, s.body = need, n
	at := s.pos*lineSize + bodyAt
	return s.ring[at : at+n : at+n]
}

// Commit sends the message that was reserved last: one unsignalled Write. With more, another message follows at once and the two
// may travel together. When the send queue is full nothing is sent, the error wraps transport.ErrQueueFull, and Commit can
// be called again. Any other error is of the queue pair, which is broken then, or says that there is nothing to commit.
func (c *Channel) Commit(k Kind, more bool) error {
	s := &c.send
	if s.reserved == 0 || k.inner() || k >= kinds {
		return fmt.Errorf("%w: Commit of %v with %d lines reserved", transport.ErrInvalid, k, s.reserved)
	}
	n := s.body
	if err := c.post(k, n, s.reserved, s.reserved, more); err != nil {
		return err
	}
	s.reserved = 0
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
	return nil
}

// post writes flags and header around a body of n bytes in the next lines, sends those lines, and goes on by advance lines.
func (c *Channel) post(k Kind, n, lines, advance int, more bool) error {
	s := &c.send
	from, length := s.pos*lineSize, lines*lineSize
	m := s.ring[from : from+length]
	binary.LittleEndian.PutUint64(m, headWord(s.generation, n))
	binary.LittleEndian.PutUint64(m[8:], headerWord(c.recv.consumed, k))
	binary.LittleEndian.PutUint64(m[length-8:], s.generation)
	s.local[0].Offset, s.local[0].Length = from, length
	s.remote[0].Offset, s.remote[0].Length = uint64(from), uint64(length)
	s.wr.Flags = 0
	if more {
		s.wr.Flags = transport.FlagMore
	}
	if err := c.qp.PostSend(&s.wr); err != nil {
		return err
	}
	c.recv.told = c.recv.consumed
	s.sent += uint32(advance)
	if s.pos += advance; s.pos == s.lines {
		s.pos = 0
		s.generation += lapStep
	}
	return nil
}
