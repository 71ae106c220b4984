package channel

import (
	"encoding/binary"
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// With Config.KeepSmall the first ring stays, and keeps the order of messages. A phase beyond the first adds
// a large ring, for bodies that the first ring's slots cannot hold. Such a message is written into the large
// ring, and an indirect descriptor of one line, LARGE, into the first: it stands for the next message of the
// large ring (E6, docs/internals/adr/0007).
//
// The lines of a large message are free when its descriptor has been credited. The descriptors of a full
// large ring may be fewer than a threshold. So CREDIT is also sent when more than half of the large ring is
// unadvertised, and a resize request waits until less than that is not yet credited
// (docs/internals/spec/channel.md).

// largeThreshold returns how many lines of a large ring may be unadvertised before a CREDIT must be sent:
// more than half, so that two CREDITs for it cover more than the ring. Even so a full message can be sent: a
// ring has 8 slots.
func (s shape) largeThreshold() int { return s.lines/2 + 1 }

// indirectLen is the length of a LARGE: the line of the large ring where the message begins, the next one, or
// 0 if the rest is skipped.
const indirectLen = 4

// advanceCircular advances in a large ring, whose wraps have all of its lines.
func (p *cursor) advanceCircular(lines int) {
	if p.pos += lines; p.pos == p.lines {
		p.wrap()
	}
}

// largeSendRing is the mirror of the peer's large ring; its mirror is nil if there is none.
type largeSendRing struct {
	outRing
	inUse         int // lines whose descriptors are not yet credited
	skipped       int // lines that the message being filled skips at the end of the ring
	creditStalled bool
	// the latest message is posted, but the send queue had no room for its descriptor: nothing may be sent
	// before it
	descriptorUnsent bool
	latest           indirect

	// The descriptors that are not yet credited, oldest first: they are lines of the first ring, so there is
	// room for all.
	descriptors  [128]indirect
	first, count int
}

// indirect describes a message in the large ring for its descriptor.
type indirect struct {
	sentAfter uint32 // the count of lines of the first ring when it had been sent
	line      int    // of the large ring where the message begins
	lines     int    // of the message, and skipped before it
}

var _ = [1]struct{}{}[maxSmallLines/len(largeSendRing{}.descriptors)] // fewer than there is room for

// reserve is Channel.reserve for a body that the first ring's slots cannot hold.
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

// commit sends the reserved message, and its descriptor. Once the message is posted it counts as sent: if the
// send queue has no room for the descriptor, the channel pauses until it is sent.
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

// sendDescriptor posts the descriptor of the message that was written into the large ring.
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

// descriptorUnsent reports whether a descriptor must be sent before anything else.
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

// creditImminent reports whether enough lines are not yet credited that the peer may be about to send a
// CREDIT.
func (l *largeSendRing) creditImminent(s *sendRing) bool {
	l.reclaimCredited(s)
	return l.mirror != nil && l.inUse >= l.mirror.largeThreshold()
}

// change begins the mirror of another large ring, or of none. All earlier messages have been consumed.
func (l *largeSendRing) change(mirror *buffer, a resizeReply) {
	*l = largeSendRing{}
	if mirror != nil {
		l.begin(mirror, a)
	}
}

// adopt applies a reply to our resize request, and releases the old mirror.
func (l *largeSendRing) adopt(c *Channel, mirror *buffer, a resizeReply) error {
	s := &c.send
	old := l.mirror
	l.change(mirror, a)
	s.phase, s.maxAnyBody = a.shape.phase, a.shape.body()
	s.maxElement = c.conf.limit(a.shape.phase, a.shape.slot)
	s.maxInline = min(s.maxBody, s.maxElement+wordSize)
	return old.release()
}

// largeRecvRing is our large ring; its buffer is nil if there is none.
type largeRecvRing struct {
	inRing
	threshold int // unadvertised lines at which a CREDIT must be sent
	current   int // lines of the message that Next returned, including skipped ones
}

// change begins another large ring, or none. Unadvertised lines of the previous one no longer count.
func (l *largeRecvRing) change(b *buffer, generation uint64) {
	*l = largeRecvRing{}
	if b != nil {
		l.begin(b, generation)
		l.threshold = b.largeThreshold()
	}
}

// next returns the message of a descriptor, if it has arrived completely.
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

// release consumes the message that next returned; its descriptor remains to be consumed in the first ring.
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
