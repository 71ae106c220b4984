package channel

import (
	"encoding/binary"
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// With Config.KeepSmall the first ring stays, and keeps the order. A phase beyond the first adds a large ring beside it, for bodies that
// the first ring's slots do not take. Such a message is written into the large ring, and a marker of one line, LARGE, into the first: where
// the receiver finds a marker, the message is the next one of the large ring (E6, docs/adr/0010).
//
// The lines of a large message are free when the credit for its marker has come. Eight of them may fill the large ring while their markers come
// to less than a threshold: so CREDIT goes also when more than half of the large ring is owed. In the count of credit.go that is one CREDIT
// at most between c1 and ck, as two would be more than the ring, in place of the one for a lap: with a large ring beside it no lap of the first ends early while lines
// wait. So k is 6 here too. A question waits
// until less is owed of the large ring, too, so that the count does not go on from one large ring to the next.

// threshold of a large ring: more than half, so that two CREDITs on its behalf are more than the ring. A full message goes all the same when
// less is owed, with what it leaves out at the end of the ring: a ring has 8 slots.
func (s shape) largeThreshold() int { return s.lines/2 + 1 }

// markerLen is the body of a marker: the line of the large ring where the message begins, the next one, or 0 if the rest is left out.
const markerLen = 4

// around goes on in a large ring, whose laps have all of its lines.
func (p *place) around(lines int) {
	if p.pos += lines; p.pos == p.lines {
		p.lap()
	}
}

// largeOut is the mirror of the peer's large ring; its mirror is nil while there is none.
type largeOut struct {
	outRing
	used     int // lines that wait for the credit of their markers
	skipped  int // lines that the message being filled leaves out at the end of the ring
	starving bool
	due      bool // the message is posted, and its marker found the send queue full: nothing goes before that
	marker   marker

	// The markers whose credit has not come, oldest first: they are lines of the first ring, so there is room for all.
	markers      [128]marker
	first, count int
}

// marker is what a line of the first ring stands for.
type marker struct {
	behind uint32 // lines of the first ring that have been sent when it is
	line   int    // of the large ring where the message begins
	lines  int    // that the message takes there, and leaves out
}

var _ = [1]struct{}{}[maxSmallLines/len(largeOut{}.markers)] // fewer than there is room for

// reserveLarge is reserve for a body that the first ring's slots do not take.
func (c *Channel) reserveLarge(n, keep int) []byte {
	s := &c.send
	l := s.large
	if c.state != StateOpen || c.paused || l == nil || l.mirror == nil || uint(n) > uint(l.maxBody) {
		return nil
	}
	if !s.seat(1, keep) {
		c.starved(1)
		return nil
	}
	need, from := linesOf(n), l.pos
	if l.skipped = 0; l.lines-l.pos < need {
		l.skipped, from = l.lines-l.pos, 0
	}
	if l.reap(s); l.skipped+need > l.lines-l.used {
		if !l.starving {
			l.starving = true
			c.stats.Stalls++
			c.wantMore()
		}
		return nil
	}
	l.starving, s.starving = false, false
	s.reserved, s.body = -need, n
	at := from*lineSize + bodyAt
	return l.ring[at : at+n : at+n]
}

// commitLarge sends the message that reserveLarge has reserved, and its marker. Once the message is posted it counts as sent: where the
// marker finds the send queue full, the channel pauses until it has gone.
func (c *Channel) commitLarge(k Kind, more bool) error {
	s := &c.send
	l := s.large
	need, before := -s.reserved, l.place
	if l.skipped > 0 {
		l.around(l.skipped)
	}
	line := l.pos
	if err := l.write(c.qp, headerWord(0, k, false, 0), s.body, need, true); err != nil {
		l.place = before
		return err
	}
	l.around(need)
	l.used += l.skipped + need
	c.stats.Beside++
	l.marker = marker{line: line, lines: l.skipped + need}
	c.committed()
	return c.mark(more)
}

// mark posts the marker of the message that has been written into the large ring.
func (c *Channel) mark(more bool) error {
	s := &c.send
	l := s.large
	binary.LittleEndian.PutUint32(s.ring[s.pos*lineSize+bodyAt:], uint32(l.marker.line))
	err := c.post(large, markerLen, 1, more)
	if l.due = errors.Is(err, transport.ErrQueueFull); l.due {
		c.pause()
		return nil
	}
	if err != nil {
		return err
	}
	l.marker.behind = s.sent
	l.markers[(l.first+l.count)%len(l.markers)] = l.marker
	l.count++
	c.paused = false
	return nil
}

// markerDue tells whether a marker has to go before all else.
func (s *sendRing) markerDue() bool { return s.large != nil && s.large.due }

// reap frees the lines of the messages whose markers have been consumed.
func (l *largeOut) reap(s *sendRing) {
	for l.count > 0 {
		m := &l.markers[l.first]
		if s.sent-m.behind < s.sent-s.freed {
			return
		}
		l.used -= m.lines
		l.first = (l.first + 1) % len(l.markers)
		l.count--
	}
}

// owing tells whether so many lines are without credit that the peer may be about to tell.
func (l *largeOut) owing(s *sendRing) bool {
	l.reap(s)
	return l.mirror != nil && l.used >= l.mirror.largeThreshold()
}

// change begins the mirror of another large ring, or of none. All that was sent before has been read.
func (l *largeOut) change(mirror *buffer, a answer) {
	*l = largeOut{}
	if mirror != nil {
		l.begin(mirror, a)
	}
}

// changeLarge follows an answer to our question, and gives the old mirror back.
func (c *Channel) changeLarge(mirror *buffer, a answer) error {
	s := &c.send
	old := s.large.mirror
	s.large.change(mirror, a)
	s.phase, s.most = a.shape.phase, a.shape.body()
	s.limit = c.conf.limit(a.shape.phase, a.shape.slot)
	return old.release()
}

// largeIn is our large ring; its buffer is nil while there is none.
type largeIn struct {
	inRing
	threshold int // lines that are owed at most before a CREDIT goes
	current   int // lines of the message that Next has given, and of what it left out
}

// change begins another large ring, or none. What was owed of the one before is no more.
func (l *largeIn) change(b *buffer, generation uint64) {
	*l = largeIn{}
	if b != nil {
		l.begin(b, generation)
		l.threshold = b.largeThreshold()
	}
}

// nextLarge gives the message for which a marker stands, if all of it is there.
func (c *Channel) nextLarge(body []byte) (kind Kind, _ []byte, ok bool, err error) {
	r := &c.recv
	l := r.large
	if l.buffer == nil || len(body) != markerLen {
		return 0, nil, false, violation("a marker of %d bytes, in phase %d", len(body), r.phase)
	}
	line, at, skipped := int(binary.LittleEndian.Uint32(body)), l.place, 0
	if line == 0 && at.pos > 0 {
		skipped = at.lines - at.pos
		at.around(skipped)
	}
	if line != at.pos {
		return 0, nil, false, violation("a marker for line %d of the large ring, at line %d of %d", line, l.pos, l.lines)
	}
	from := at.pos * lineSize
	head := loadWord(l.ring, from)
	n := int(head & lengthMask)
	need := linesOf(n)
	if head != headWord(at.generation, n) || n > l.maxBody || at.pos+need > l.lines ||
		loadWord(l.ring, from+need*lineSize-8) != at.generation {
		c.stats.HeadsNoTail++
		return 0, nil, false, nil
	}
	if skipped+need+r.owed > l.lines {
		return 0, nil, false, violation("a message of %d lines in the large ring, with %d of %d lines in use", skipped+need, r.owed, l.lines)
	}
	header := binary.LittleEndian.Uint64(l.ring[from+8:])
	if kind = Kind(header >> 32); kind.inner() || header != headerWord(0, kind, false, 0) {
		return 0, nil, false, violation("a header of %#x in the large ring", header)
	}
	r.current, r.body, l.current = -1, n, skipped+need
	return kind, l.ring[from+bodyAt : from+bodyAt+n : from+bodyAt+n], true, nil
}

// release takes the message as consumed that nextLarge gave; its marker is what is left to the first ring.
func (l *largeIn) release(r *recvRing) {
	r.owed += l.current
	if l.pos+l.current > l.lines { // the rest of the ring was left out
		rest := l.lines - l.pos
		l.around(rest)
		l.around(l.current - rest)
	} else {
		l.around(l.current)
	}
	r.current = 1
}
