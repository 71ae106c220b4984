package channel

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/transport"
)

// outRing is the mirror of one of the peer's rings, from which it is written.
type outRing struct {
	cursor
	ring    []byte
	maxBody int    // of a message in this ring
	base    uint64 // offset of the ring in the peer's region

	wr     transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	mirror *buffer

	head [inlineHead]byte // of the message that is written inline
}

// inlineHead is the size of what an inline write has before the payload: head flag, header, and the first
// word of the body.
const inlineHead = bodyAt + wordSize

// begin begins a mirror at its first line.
func (o *outRing) begin(mirror *buffer, granted resizeReply) {
	o.mirror, o.ring, o.maxBody = mirror, mirror.ring(), mirror.body()
	o.cursor = cursor{lines: mirror.lines, generation: granted.generation}
	o.local[0].MR = mirror.MR
	o.remote[0].Key = granted.key
	o.base = granted.offset
	o.wr = transport.SendWR{Op: transport.OpWrite, Local: o.local[:], Remote: o.remote[:]}
}

// write adds flags and header to a body of n bytes in the next lines, and sends them.
func (o *outRing) write(qp transport.QP, header uint64, n, lines int, more bool) error {
	from, length := o.pos*lineSize, lines*lineSize
	m := o.ring[from : from+length]
	binary.LittleEndian.PutUint64(m, headWord(o.generation, n))
	binary.LittleEndian.PutUint64(m[8:], header)
	binary.LittleEndian.PutUint64(m[length-8:], o.generation)
	o.local[0].Offset, o.local[0].Length = from, length
	o.remote[0].Offset, o.remote[0].Length = o.base+uint64(from), uint64(length)
	o.wr.Flags = 0
	if more {
		o.wr.Flags = transport.FlagMore
	}
	return qp.PostSend(&o.wr)
}

// nextLines returns the segment of the next lines, for an inline write that ends with the tail flag.
func (o *outRing) nextLines(lines int) *transport.Segment {
	to := &o.remote[0]
	to.Offset, to.Length = o.base+uint64(o.pos*lineSize), uint64(lines*lineSize)
	return to
}

// sendRing is the ring that determines the order of everything that this end sends.
type sendRing struct {
	outRing
	phase      int
	maxAnyBody int // of a message, in either ring
	maxElement int // of a vector; the threshold, or what a slot carries
	// the largest body of an inline write: it fits the ring's slots, and is not larger than maxElement after
	// a word
	maxInline int

	// Counts of lines, since the channel was opened and modulo 2^32: wrapStart ≤ sent, credited ≤ sent.
	sent      uint32
	wrapStart uint32 // sent before the present wrap
	credited  uint32 // advertised by the peer as consumed

	// Lines into which an inline write may go without a check: from the next one on, and from line 0 on once
	// everything sent has been consumed. There may be more. Both are 0 while nothing may be sent.
	freeAhead     int
	freeAfterWrap int

	// lines of the reserved message; 0 if there is none, negative if it is in the large ring
	reserved int
	body     int // its length

	bothPolling   bool // both ends poll their own core's memory: every wrap begins windowed
	windowed      bool // the present wrap keeps to the cache window
	takeover      bool // the receiver takes over the lines of longer messages (takeover.go)
	untaken       int  // lines to be sent until all that are written have been taken over
	staleCreditOK bool // credits may arrive that are older than a resize reply
	creditStalled bool // the last attempt to send found no credit
	queueFull     bool // since TakeQueueFull, a message has found the send queue full

	large *largeSendRing // nil unless Config.KeepSmall

	creditsFrom, creditsEnd uint32 // sent before and after the latest CREDITs in a row
}

// change begins the mirror of a ring at its first line. The counts of lines continue; everything sent before
// has been consumed.
func (s *sendRing) change(mirror *buffer, granted resizeReply, maxElement int) {
	s.begin(mirror, granted)
	s.phase, s.maxAnyBody, s.maxElement = mirror.phase, mirror.body(), maxElement
	s.maxInline = min(s.maxBody, maxElement+wordSize)
	s.reserved, s.freeAhead, s.freeAfterWrap = 0, 0, 0
	s.credited, s.wrapStart, s.staleCreditOK, s.windowed = s.sent, s.sent, true, s.bothPolling
	if s.takeover {
		s.untaken = s.lines
	}
}

// LeavesRoom reports whether a message with a payload of n bytes, in one slot or several, would leave half of
// the ring to others: now, or when a ring of which it takes more than a quarter has grown for it. A receiver
// that keeps up lets its sender find that much room.
func (c *Channel) LeavesRoom(n int) bool {
	s, lines := &c.send, linesOf(n)
	return s.large == nil && (2*(int(s.sent-s.credited)+lines) <= s.lines || 4*lines > s.lines)
}

// MaxBody returns the largest body of a message, which depends on the peer's slot size; 0 before Open.
func (c *Channel) MaxBody() int { return c.send.maxAnyBody }

// FirstPhaseBody returns the largest body of a message that fits in every phase.
func (c *Channel) FirstPhaseBody() int { return c.phases[0] - overhead }
