package channel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/words"
	"github.com/weft-mpi/weft/transport"
)

// outRing is the mirror of one of the peer's rings, out of which it is written.
type outRing struct {
	place
	ring    []byte
	maxBody int    // of a message in this ring
	base    uint64 // offset of the ring in the peer's region

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	mirror *buffer
}

// begin takes a mirror from its first line on.
func (o *outRing) begin(mirror *buffer, a answer) {
	o.mirror, o.ring, o.maxBody = mirror, mirror.ring(), mirror.body()
	o.place = place{lines: mirror.lines, generation: a.generation}
	o.local[0].MR = mirror.MR
	o.remote[0].Key = a.key
	o.base = a.offset
	o.wr = transport.SendWR{Op: transport.OpWrite, Local: o.local[:], Remote: o.remote[:]}
}

// sendRing is the ring in which all that we send has its order.
type sendRing struct {
	outRing
	phase    int
	most     int    // the largest body of a message, in whichever ring
	limit    int    // of an element
	sent     uint32 // lines, since the beginning
	began    uint32 // of these, those before the present lap
	freed    uint32 // lines that the peer has told us to have consumed
	clear    int    // lines from the next one on that a message may be placed in; there may be more. None while nothing may go
	again    int    // likewise from line 0 on, once all that was sent has been read
	reserved int    // lines of the message being filled; 0 when there is none, less when it is in the large ring
	body     int    // its length
	abreast  bool   // laps are narrow to begin with, and the peer's may be
	narrow   bool   // the present lap is
	late     bool   // credits may come that are older than what an answer has told
	hold     bool   // the peer wants payload announced, not sent
	starving bool   // the last Reserve found no credit
	large    *largeOut
}

// change begins the mirror of a ring at its first line. The counts of lines go on; all that was sent before has been read.
func (s *sendRing) change(mirror *buffer, a answer, limit int) {
	s.begin(mirror, a)
	s.phase, s.most, s.limit, s.reserved, s.clear, s.again = mirror.phase, mirror.body(), limit, 0, 0, 0
	s.freed, s.began, s.late, s.narrow = s.sent, s.sent, true, s.abreast
}

// MaxBody is the most that the body of one message can have, by the peer's slot size; 0 before Open.
func (c *Channel) MaxBody() int { return c.send.most }

// LeastBody is the most that the body of a message can have in every phase.
func (c *Channel) LeastBody() int { return c.phases[0] - overhead }

// Reserve gives the body of the next message, n bytes long, to be filled and then committed. It gives nil when the peer has
// given too few credits back, when the channel is not open, and for an n below 0 or above MaxBody, which will never do. The body
// holds old bytes. Only the last Reserve counts; one that is not committed costs nothing.
func (c *Channel) Reserve(n int) []byte { return c.reserve(n, dataKeeps) }

// ReserveControl is Reserve for a control message, which may use lines that data leaves free.
func (c *Channel) ReserveControl(n int) []byte { return c.reserve(n, creditLines) }

func (c *Channel) reserve(n, keep int) []byte {
	s := &c.send
	s.reserved = 0
	if c.state != StateOpen || c.paused || uint(n) > uint(s.maxBody) {
		return c.reserveLarge(n, keep)
	}
	need := linesOf(n)
	if !s.seat(need, keep) {
		c.starved(need)
		return nil
	}
	s.starving = false
	s.reserved, s.body = need, n
	at := s.pos*lineSize + bodyAt
	return s.ring[at : at+n : at+n]
}

// starved counts the times that the stream of messages ran out of credits, not how often that was looked at. A channel that starves
// again and again asks for the next phase (E11).
//
// Not so where memory is shared, and the ring has grown and holds plenty of messages as long as the one that waits, whose lines are given: then
// the peer takes them out at this moment, and a larger ring would only be farther from both.
func (c *Channel) starved(need int) {
	s := &c.send
	if s.starving {
		return
	}
	s.starving = true
	c.stats.Stalls++
	if s.large != nil || c.near && s.phase > 0 && need*plenty <= s.lines {
		return // beside the small ring a larger one is of no use to what starves in it
	}
	c.wantMore()
}

// plenty is how many messages are enough for two who take turns at a ring.
const plenty = 32

// wantMore notes that the ring which a phase changes ran out of credits.
func (c *Channel) wantMore() {
	if c.quiet.stalls++; c.quiet.stalls == starveLimit && c.send.phase+1 < c.refused {
		c.wanted = c.send.phase + 1 // Progress asks
		c.pause()
	}
}

// Crowded counts the times that messages which would have shared a slot found it too small. A channel on which that happens again and again
// asks for the next phase when there is nothing under way; unlike one that starves it does not stop sending for that (E11). One that keeps its
// small ring does not ask.
func (c *Channel) Crowded() {
	if c.send.large != nil { // small messages stay where they are
		return
	}
	if c.quiet.stalls++; c.quiet.stalls == starveLimit && !c.paused && c.wanted < 0 && c.send.phase+1 < c.refused {
		c.wanted = c.send.phase + 1
	}
}

// starveLimit is how often credits may run out, or slots be too small, between two Ticks.
const starveLimit = 64

// Commit sends the message that was reserved last: one unsignalled Write. With more, another message follows at once and the two
// may travel together. When the send queue is full nothing is sent, the error wraps transport.ErrQueueFull, and Commit can
// be called again. Any other error is of the queue pair, which is broken then, or says that there is nothing to commit.
func (c *Channel) Commit(k Kind, more bool) error {
	s := &c.send
	if s.reserved <= 0 || k.inner() {
		if s.reserved < 0 && !k.inner() {
			return c.commitLarge(k, more)
		}
		return fmt.Errorf("%w: Commit of %v with %d lines reserved", transport.ErrInvalid, k, s.reserved)
	}
	if err := c.post(k, s.body, s.reserved, more); err != nil {
		return err
	}
	c.committed()
	return nil
}

// committed counts the message that was reserved.
func (c *Channel) committed() {
	n := c.send.body
	c.send.reserved = 0
	c.quiet.largest = max(c.quiet.largest, n)
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
}

// Answer is where in memory an answer with a body of n bytes would go, as far as Expect could tell, for a prefetch and nothing else; 0 where there is
// no sense in one. To fetch one line of several costs more than it gains.
func (c *Channel) Answer(n int) uintptr {
	if n > lineSize-overhead {
		return 0
	}
	return c.answer
}

// next is where in memory the next message goes, if it is sent in answer to all that the peer has sent.
func (c *Channel) next() uintptr {
	if !c.near {
		return 0
	}
	line := c.send.pos
	if line >= dialogLines { // the peer has read all others by then
		line = 0
	}
	return c.placer.Line(c.send.base + uint64(line*lineSize))
}

// Put is Reserve and Commit in one: it sends a message whose body is a word, little-endian, and a payload. False, with no error, means that
// there is no room now, or that there is none in a narrow lap (Widen). It is for what Place has been tried with in vain.
func (c *Channel) Put(k Kind, first uint64, payload []byte, more bool) (sent bool, err error) {
	n := wordSize + len(payload)
	if !k.inner() && c.placeable(n) {
		s := &c.send
		lines, at, began, narrow := linesOf(n), s.place, s.began, s.narrow
		switch {
		case s.turn(lines):
			s.clear = lines
			if c.Place(k, first, payload, more) {
				return true, nil
			}
			s.place, s.began, s.narrow, s.clear = at, began, narrow, 0 // of a lap that was begun nothing has gone out
		case s.reach(lines) < s.lines:
			return false, nil
		}
	}
	body := c.Reserve(n)
	if body == nil {
		return false, nil
	}
	binary.LittleEndian.PutUint64(body, first)
	words.Copy(body[wordSize:], payload)
	if err := c.Commit(k, more); err != nil {
		return false, full(err)
	}
	return true, nil
}

// Place is Put in the common case, and the shortest way: the message is written straight to where it goes, out of what the caller has, into lines that
// are known to be free. It tells whether that was so. Otherwise nothing has been sent, and there may be room all the same: then Put is to be called.
// What was reserved before is to be reserved again. k is a kind of the layer above.
func (c *Channel) Place(k Kind, first uint64, payload []byte, more bool) bool {
	s := &c.send
	n := wordSize + len(payload)
	lines := linesOf(n)
	if n > s.maxBody || more && !c.near {
		return false
	}
	if lines > s.clear {
		if lines > s.again || s.freed != s.sent {
			return false
		}
		s.anew()
	}
	to := &s.remote[0]
	to.Offset, to.Length = s.base+uint64(s.pos*lineSize), uint64(lines*lineSize)
	head := transport.Head{A: headWord(s.generation, n), B: headerWord(c.recv.consumed, k, c.holding, s.before()), C: first}
	if !c.placer.Place(to, head, payload, s.generation) {
		return false
	}
	s.starving, s.reserved, s.body = false, 0, n
	c.advanced(lines)
	c.committed()
	return true
}

// placeable tells whether a message of n bytes may be placed, if there is room. Where lines were known to be free it was not for want of those.
func (c *Channel) placeable(n int) bool {
	return c.placer != nil && !c.paused && n <= c.send.maxBody && linesOf(n) > c.send.clear
}

// full turns a full send queue into no error.
func full(err error) error {
	if errors.Is(err, transport.ErrQueueFull) {
		return nil
	}
	return err
}

// post sends a message of the ring that keeps the order, out of the next lines, which seat has found.
func (c *Channel) post(k Kind, n, lines int, more bool) error {
	s := &c.send
	if err := s.write(c.qp, headerWord(c.recv.consumed, k, c.holding, s.before()), n, lines, more); err != nil {
		return err
	}
	c.advanced(lines)
	return nil
}

// advanced notes that a message has gone out, with all that we have to tell, and that the next one begins so many lines on.
func (c *Channel) advanced(lines int) {
	s := &c.send
	c.recv.told, c.recv.owed, c.recv.due = c.recv.consumed, 0, false
	s.sent += uint32(lines)
	s.pos += lines
	if s.clear, s.again = 0, 0; c.paused || c.placer == nil {
		return
	}
	if s.pos < dialogLines || int(s.sent-s.freed) != lines { // else another lap most likely begins
		s.clear = s.room(lines)
	}
	if s.pos >= dialogLines && s.large == nil { // with a large ring seat has something to do at times
		s.again = s.lines - dataKeeps
	}
}

// write puts flags and header around a body of n bytes in the next lines, and sends those.
func (o *outRing) write(qp transport.QP, header uint64, n, lines int, more bool) error {
	from, length := o.pos*lineSize, lines*lineSize
	m := o.ring[from : from+length]
	binary.LittleEndian.PutUint64(m, headWord(o.generation, n))
	binary.LittleEndian.PutUint64(m[8:], header)
	binary.LittleEndian.PutUint64(m[length-8:], o.generation)
	return o.send(qp, from, length, more)
}

// send writes a stretch of the mirror to where it belongs.
func (o *outRing) send(qp transport.QP, from, length int, more bool) error {
	o.local[0].Offset, o.local[0].Length = from, length
	o.remote[0].Offset, o.remote[0].Length = o.base+uint64(from), uint64(length)
	o.wr.Flags = 0
	if more {
		o.wr.Flags = transport.FlagMore
	}
	return qp.PostSend(&o.wr)
}
