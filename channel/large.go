package channel

import (
	"encoding/binary"
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// With Config.KeepSmall the first ring stays, and keeps the order. A phase beyond the first adds a large
// ring, for bodies that the first ring's slots do not take. Such a message is written into the large ring,
// and an indirect descriptor of one line, LARGE, into the first: where the receiver finds one, the message is
// the next one of the large ring (E6, docs/internals/adr/0007).
//
// The lines of a large message are free when the credit for its descriptor has come. As the descriptors of a
// full large ring may come to less than a threshold, CREDIT goes also when more than half of the large ring
// is not advertised, and a resize request waits until less than that lacks its credit
// (docs/internals/spec/channel.md).

// largeThreshold is how many lines of a large ring may be unadvertised before a CREDIT must go: more than
// half, so that two CREDITs on its behalf are more than the ring. A full message goes all the same when less
// is unadvertised: a ring has 8 slots.
func (s shape) largeThreshold() int { return s.lines/2 + 1 }

// indirectLen is the body of LARGE: the line of the large ring where the message begins, the next one, or 0
// if the rest is left out.
const indirectLen = 4

// advanceCircular goes on in a large ring, whose wraps have all of its lines.
func (p *cursor) advanceCircular(lines int) {
	if p.pos += lines; p.pos == p.lines {
		p.wrap()
	}
}

// largeSendRing is the mirror of the peer's large ring; its mirror is nil while there is none.
type largeSendRing struct {
	outRing
	inUse         int // lines that wait for the credit of their descriptors
	skipped       int // lines that the message being filled leaves out at the end of the ring
	creditStalled bool
	// the latest message is posted, and its descriptor found the send queue full: nothing may go before it
	descriptorUnsent bool
	latest           indirect

	// The descriptors whose credit has not come, oldest first: they are lines of the first ring, so there is
	// room for all.
	descriptors  [128]indirect
	first, count int
}

// indirect is the message for which a line of the first ring stands.
type indirect struct {
	sentAfter uint32 // the count of lines of the first ring when it had been sent
	line      int    // of the large ring where the message begins
	lines     int    // that the message takes there, and leaves out
}

var _ = [1]struct{}{}[maxSmallLines/len(largeSendRing{}.descriptors)] // fewer than there is room for

// reserve is Channel.reserve for a body that the first ring's slots do not take.
func (l *largeSendRing) reserve(c *Channel, n, keep int) []byte {
	s := &c.send
	if c.state != StateOpen || c.paused || l == nil || l.mirror == nil || uint(n) > uint(l.maxBody) {
		return nil
	}
	if !s.reserveLines(1, keep) {
		c.onCreditStall(1)
		return nil
	}
	need, from := linesOf(n), l.pos
	if l.skipped = 0; l.lines-l.pos < need {
		l.skipped, from = l.lines-l.pos, 0
	}
	if l.reclaimCredited(s); l.skipped+need > l.lines-l.inUse {
		if !l.creditStalled {
			l.creditStalled = true
			c.stats.Stalls++
			c.growAfterStalls()
		}
		return nil
	}
	l.creditStalled, s.creditStalled = false, false
	s.reserved, s.body = -need, n
	at := from*lineSize + bodyAt
	return l.ring[at : at+n : at+n]
}

// commit sends the message that reserve has reserved, and its descriptor. Once the message is
// posted it counts as sent: where the descriptor finds the send queue full, the channel pauses until it has
// gone.
func (l *largeSendRing) commit(c *Channel, k Kind, more bool) error {
	s := &c.send
	need, before := -s.reserved, l.cursor
	if l.skipped > 0 {
		l.advanceCircular(l.skipped)
	}
	line := l.pos
	if err := l.write(c.qp, headerWord(0, k, false, 0), s.body, need, true); err != nil {
		l.cursor = before
		s.queueFull = s.queueFull || errors.Is(err, transport.ErrQueueFull)
		return err
	}
	l.advanceCircular(need)
	l.inUse += l.skipped + need
	c.stats.ViaLargeRing++
	l.latest = indirect{line: line, lines: l.skipped + need}
	c.onCommitted()
	return l.sendDescriptor(c, more)
}

// sendDescriptor posts the descriptor of the message that has been written into the large ring.
func (l *largeSendRing) sendDescriptor(c *Channel, more bool) error {
	s := &c.send
	binary.LittleEndian.PutUint32(s.ring[s.pos*lineSize+bodyAt:], uint32(l.latest.line))
	err := c.post(large, indirectLen, 1, more)
	if l.descriptorUnsent = errors.Is(err, transport.ErrQueueFull); l.descriptorUnsent {
		c.pause()
		return nil
	}
	if err != nil {
		return err
	}
	l.latest.sentAfter = s.sent
	l.descriptors[(l.first+l.count)%len(l.descriptors)] = l.latest
	l.count++
	c.paused = false
	return nil
}

// descriptorUnsent reports whether a descriptor has to go before all else.
func (s *sendRing) descriptorUnsent() bool { return s.large != nil && s.large.descriptorUnsent }

// reclaimCredited frees the lines of the messages whose descriptors have been consumed.
func (l *largeSendRing) reclaimCredited(s *sendRing) {
	for l.count > 0 {
		m := &l.descriptors[l.first]
		if s.sent-m.sentAfter < s.sent-s.credited {
			return
		}
		l.inUse -= m.lines
		l.first = (l.first + 1) % len(l.descriptors)
		l.count--
	}
}

// creditImminent reports whether so many lines lack their credit that the peer may be about to send a CREDIT
// for them.
func (l *largeSendRing) creditImminent(s *sendRing) bool {
	l.reclaimCredited(s)
	return l.mirror != nil && l.inUse >= l.mirror.largeThreshold()
}

// change begins the mirror of another large ring, or of none. All that was sent before has been consumed.
func (l *largeSendRing) change(mirror *buffer, a resizeReply) {
	*l = largeSendRing{}
	if mirror != nil {
		l.begin(mirror, a)
	}
}

// adopt follows a reply to our resize request, and gives the old mirror back.
func (l *largeSendRing) adopt(c *Channel, mirror *buffer, a resizeReply) error {
	s := &c.send
	old := l.mirror
	l.change(mirror, a)
	s.phase, s.maxAnyBody = a.shape.phase, a.shape.body()
	s.maxElement = c.conf.limit(a.shape.phase, a.shape.slot)
	s.maxInline = min(s.maxBody, s.maxElement+wordSize)
	return old.release()
}

// largeRecvRing is our large ring; its buffer is nil while there is none.
type largeRecvRing struct {
	inRing
	threshold int // how many lines may be unadvertised before a CREDIT must go
	current   int // lines of the message that Next has given, and of what it left out
}

// change begins another large ring, or none. What was unadvertised of the one before does not count any more.
func (l *largeRecvRing) change(b *buffer, generation uint64) {
	*l = largeRecvRing{}
	if b != nil {
		l.begin(b, generation)
		l.threshold = b.largeThreshold()
	}
}

// next gives the message for which a descriptor stands, if all of it is there.
func (l *largeRecvRing) next(c *Channel, body []byte) (kind Kind, _ []byte, ok bool, err error) {
	r := &c.recv
	if l.buffer == nil || len(body) != indirectLen {
		return 0, nil, false, violation("LARGE of %d bytes, in phase %d", len(body), r.phase)
	}
	line, at, skipped := int(binary.LittleEndian.Uint32(body)), l.cursor, 0
	if line == 0 && at.pos > 0 {
		skipped = at.lines - at.pos
		at.advanceCircular(skipped)
	}
	if line != at.pos {
		return 0, nil, false, violation("LARGE for line %d of the large ring, at line %d of %d", line,
			l.pos, l.lines)
	}
	from := at.pos * lineSize
	head := loadWord(l.ring, from)
	n := int(head & lengthMask)
	need := linesOf(n)
	if head != headWord(at.generation, n) || n > l.maxBody || at.pos+need > l.lines ||
		loadWord(l.ring, from+need*lineSize-8) != at.generation {
		c.stats.HeadsWithoutTail++
		return 0, nil, false, nil
	}
	if skipped+need+r.largeUnadvertised > l.lines {
		return 0, nil, false,
			violation("a message of %d lines in the large ring, with %d of %d lines in use", skipped+need,
				r.largeUnadvertised, l.lines)
	}
	header := binary.LittleEndian.Uint64(l.ring[from+8:])
	if kind = Kind(header >> 32); kind.inner() || header != headerWord(0, kind, false, 0) {
		return 0, nil, false, violation("a header of %#x in the large ring", header)
	}
	r.current, r.body, l.current = -1, n, skipped+need
	return kind, l.ring[from+bodyAt : from+bodyAt+n : from+bodyAt+n], true, nil
}

// release takes the message as consumed that next gave; its descriptor is what is left to the first
// ring.
func (l *largeRecvRing) release(r *recvRing) {
	r.largeUnadvertised += l.current
	if l.pos+l.current > l.lines { // the rest of the ring was left out
		rest := l.lines - l.pos
		l.advanceCircular(rest)
		l.advanceCircular(l.current - rest)
	} else {
		l.advanceCircular(l.current)
	}
	r.current = 1
}
