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
	limit      int    // of an element
	generation uint64 // of the present lap
	base       uint64 // offset of the ring in the peer's region
	sent       uint32 // lines, since the beginning, those skipped included
	freed      uint32 // lines that the peer has told us to have consumed
	reserved   int    // lines of the message being filled; 0 when there is none
	body       int    // its length
	late       bool   // credits may come that are older than what an answer has told
	hold       bool   // the peer wants payload announced, not sent
	starving   bool   // the last Reserve found no credit

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	mirror *buffer
}

// change begins the mirror of a ring at its first line. The counts of lines go on; all that was sent before has been read.
func (s *sendRing) change(mirror *buffer, a answer, limit int) {
	s.mirror, s.ring, s.lines = mirror, mirror.ring(), mirror.lines
	s.maxBody, s.limit = mirror.body(), limit
	s.pos, s.generation, s.reserved = 0, a.generation, 0
	s.freed, s.late = s.sent, true
	s.local[0].MR = mirror.MR
	s.remote[0].Key = a.key
	s.base = a.offset
	s.wr = transport.SendWR{Op: transport.OpWrite, Local: s.local[:], Remote: s.remote[:]}
}

// MaxBody is the most that the body of one message can have, by the peer's slot size; 0 before Open.
func (c *Channel) MaxBody() int { return c.send.maxBody }

// LeastBody is the most that the body of a message can have in every phase.
func (c *Channel) LeastBody() int { return c.phases[0] - overhead }

// Reserve gives the body of the next message, n bytes long, to be filled and then committed. It gives nil when the peer has
// given too few credits back, when the channel is not open, and for an n below 0 or above MaxBody, which will never do. The body
// holds old bytes. Only the last Reserve counts; one that is not committed costs nothing.
func (c *Channel) Reserve(n int) []byte { return c.reserve(n, controlLines+creditLines) }

// ReserveControl is Reserve for a control message, which may use lines that data leaves free.
func (c *Channel) ReserveControl(n int) []byte { return c.reserve(n, creditLines) }

func (c *Channel) reserve(n, keep int) []byte {
	s := &c.send
	s.reserved = 0
	if c.state != StateOpen || c.paused || uint(n) > uint(s.maxBody) {
		return nil
	}
	need := linesOf(n)
	total := need
	rest := s.lines - s.pos
	if rest < need {
		total += rest
	}
	if total+keep > s.lines-int(s.sent-s.freed) {
		c.starved()
		return nil
	}
	s.starving = false
	if total > need {
		if err := c.post(skip, 0, 1, rest, true); err != nil {
			return nil // the send queue is full: try again. Or the queue pair is broken: its completions tell
		}
	}
	s.reserved, s.body = need, n
	at := s.pos*lineSize + bodyAt
	return s.ring[at : at+n : at+n]
}

// starved counts the times that the stream of messages ran out of credits, not how often that was looked at. A channel that starves
// again and again asks for the next phase (E11).
func (c *Channel) starved() {
	s := &c.send
	if s.starving {
		return
	}
	s.starving = true
	c.stats.Stalls++
	if c.quiet.stalls++; c.quiet.stalls == starveLimit && s.mirror.phase+1 < c.refused {
		c.wanted, c.paused = s.mirror.phase+1, true // Progress asks
	}
}

// Crowded counts the times that messages which would have shared a slot found it too small. A channel on which that happens again and again
// asks for the next phase when there is nothing under way; unlike one that starves it does not stop sending for that (E11).
func (c *Channel) Crowded() {
	if c.quiet.stalls++; c.quiet.stalls == starveLimit && !c.paused && c.wanted < 0 && c.send.mirror.phase+1 < c.refused {
		c.wanted = c.send.mirror.phase + 1
	}
}

// starveLimit is how often credits may run out, or slots be too small, between two Ticks.
const starveLimit = 64

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
	c.quiet.largest = max(c.quiet.largest, n)
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
	binary.LittleEndian.PutUint64(m[8:], headerWord(c.recv.consumed, k, c.holding))
	binary.LittleEndian.PutUint64(m[length-8:], s.generation)
	s.local[0].Offset, s.local[0].Length = from, length
	s.remote[0].Offset, s.remote[0].Length = s.base+uint64(from), uint64(length)
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
