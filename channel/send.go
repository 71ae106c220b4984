package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// sendRing is the mirror of the peer's ring and where we are in it.
type sendRing struct {
	ring  []byte
	mr    transport.MR
	lines int
	slot  int // lines of a full slot

	pos        int    // the next line to fill
	generation uint64 // of the present lap
	sent       uint32 // lines, since the beginning, those skipped included
	freed      uint32 // lines that the peer has told us to have consumed

	reserved int // lines of the message being filled; 0 when there is none
	body     int // its length

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
}

func (s *sendRing) init(mr transport.MR, d Descriptor) {
	s.ring, s.mr = mr.Bytes(), mr
	s.lines, s.slot = d.Lines, d.SlotSize/lineSize
	s.generation = d.Generation
	s.local[0].MR = mr
	s.remote[0].Key = d.Key
	s.wr = transport.SendWR{Op: transport.OpWrite, Local: s.local[:], Remote: s.remote[:]}
}

// MaxBody is the most that the body of one message can have; 0 before Open.
func (c *Channel) MaxBody() int {
	return max(0, c.send.slot*lineSize-overhead)
}

// Reserve gives the body of the next message, n bytes long, to be filled and then committed. It gives nil when the peer has
// given too few credits back, when the channel is not open, or when n is more than MaxBody: then there is no such message. The body holds old
// bytes. Only the last Reserve counts.
func (c *Channel) Reserve(n int) []byte { return c.reserve(n, controlLines+creditLines) }

// ReserveControl is Reserve for a control message, which may use lines that data leaves free.
func (c *Channel) ReserveControl(n int) []byte { return c.reserve(n, creditLines) }

func (c *Channel) reserve(n, keep int) []byte {
	s := &c.send
	need := linesOf(n)
	if c.state != StateOpen || n < 0 || need > s.slot {
		return nil
	}
	total := need
	if rest := s.lines - s.pos; rest < need {
		total += rest
	}
	if total+keep > s.lines-int(s.sent-s.freed) {
		c.stats.Stalls++
		return nil
	}
	if total > need {
		if err := c.skipRest(); err != nil {
			return nil // the queue is full or the QP is gone: the caller tries again, or hears of it from its completion
		}
	}
	s.reserved, s.body = need, n
	at := s.pos*lineSize + 8 + headerBytes
	return s.ring[at : at+n : at+n]
}

// skipRest sends the marker that takes all lines up to the end of the ring.
func (c *Channel) skipRest() error {
	s := &c.send
	rest := s.lines - s.pos
	s.reserved, s.body = 1, 0
	if err := c.post(skip, rest, true); err != nil {
		return err
	}
	return nil
}

// Commit sends the message that was reserved last: one Write. With more, another message follows at once and the two may travel
// together. When the send queue is full nothing is sent, the error is transport.ErrQueueFull, and Commit can be called again.
func (c *Channel) Commit(k Kind, more bool) error {
	if c.send.reserved == 0 {
		return fmt.Errorf("channel: Commit of %v without Reserve", k)
	}
	n := c.send.body
	if err := c.post(k, c.send.reserved, more); err != nil {
		return err
	}
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
	return nil
}

// post writes flags and header of the message in the reserved lines, sends those, and goes on by so many lines of the ring.
func (c *Channel) post(k Kind, advance int, more bool) error {
	s := &c.send
	from := s.pos * lineSize
	length := s.reserved * lineSize
	m := s.ring[from : from+length]
	binary.LittleEndian.PutUint64(m, headWord(s.generation, s.body))
	binary.LittleEndian.PutUint64(m[8:], uint64(c.recv.consumed)|uint64(k)<<32)
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
	s.reserved = 0
	s.sent += uint32(advance)
	if s.pos += advance; s.pos == s.lines {
		s.pos = 0
		s.generation++
	}
	return nil
}

// Progress sends the CREDIT that is owed. It tells whether one is owed that cannot go now: call it again after the next pass.
func (c *Channel) Progress() (owing bool, err error) {
	if c.state != StateOpen || int(c.recv.consumed-c.recv.told) < c.recv.lines/4 {
		return false, nil
	}
	if int(c.send.sent-c.send.freed) >= c.send.lines {
		return true, nil
	}
	c.send.reserved, c.send.body = 1, 0
	switch err := c.post(credit, 1, false); err {
	case nil:
		c.stats.Credits++
		return false, nil
	case transport.ErrQueueFull:
		return true, nil
	default:
		return false, err
	}
}

// credited takes the peer's count of lines consumed.
func (s *sendRing) credited(count uint32) error {
	if count-s.freed > s.sent-s.freed {
		return fmt.Errorf("%w: credit for %d lines, of which %d were sent", transport.ErrProtocol, count-s.freed, s.sent-s.freed)
	}
	s.freed = count
	return nil
}
