package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/internal/words"
	"github.com/weft-mpi/weft/transport"
)

// inRing is one of our rings, into which the peer writes.
type inRing struct {
	place
	ring    []byte
	maxBody int // of a message in this ring

	buffer *buffer
}

// begin takes a ring from its first line on.
func (i *inRing) begin(b *buffer, generation uint64) {
	i.buffer, i.ring, i.maxBody = b, b.ring(), b.body()
	i.place = place{lines: b.lines, generation: generation}
}

// recvRing is the ring in which all that the peer sends has its order.
type recvRing struct {
	inRing
	phase     int
	consumed  uint32 // lines, since the beginning
	told      uint32 // of these, what the peer has been told
	threshold int    // lines that are owed at most before a CREDIT goes
	current   int    // lines of the message that Next has given; 0 when there is none, -1 when that is in the large ring
	body      int    // its length
	due       bool   // a CREDIT is, however little is owed: the lap before ended early, with lines that the peer has not been told of
	last      int    // lines of the last message
	owed      int    // lines of the large ring that are consumed and not told
	expected  expected
	large     *largeIn
}

// change begins a ring at its first line. The counts of lines go on.
func (r *recvRing) change(b *buffer, generation uint64) {
	r.begin(b, generation)
	r.expected = expected{} // the old ring's memory may be somebody else's soon
	r.phase, r.threshold, r.due = b.phase, b.threshold(), false
}

// begun notes that a message is the first of a lap. If the lap before could have gone on, the sender may be out of lines by what it has not been told of.
func (r *recvRing) begun() {
	r.due = r.told != r.consumed && r.ended+linesOf(r.maxBody) <= r.lines
}

// behind tells whether so much has been consumed and not told that a CREDIT is to go.
func (r *recvRing) behind() bool {
	return int(r.consumed-r.told) >= r.threshold || r.due || r.owed > 0 && r.owed >= r.large.threshold
}

// expected is what the next message looks like if it is as long as Expect has been told: all that can be known before it is there.
type expected struct {
	lines  []byte // where it will stand; nil where nothing is expected
	head   uint64
	body   int    // its length
	before uint64 // what its header says of the lap before, where the kind stands in its lowest bits
	at     place
}

// Expect tells of how many bytes the body of the next message most likely is. What follows from that is worked out now, and not when the message
// has come and somebody waits for it.
func (c *Channel) Expect(n int) {
	r := &c.recv
	c.answer = c.next()
	// A peer that has been told everything begins another lap as our own sending does.
	c.expectAt(n, r.pos+linesOf(n) > r.lines || r.pos >= dialogLines && r.told == r.consumed)
}

// expectAt expects a message of n bytes behind the last one, or at the beginning of another lap.
func (c *Channel) expectAt(n int, anew bool) {
	r := &c.recv
	p := r.place
	if anew {
		p.lap()
	}
	r.expected.lines = nil
	at, need := p.pos*lineSize, linesOf(n)
	if c.state == StateOpen && n <= r.maxBody && need <= p.lines-p.pos && int(r.consumed-r.told)+need <= p.lines {
		r.expected = expected{r.ring[at : at+need*lineSize], headWord(p.generation, n), n, uint64(p.before()) << (endedBit - 32), p}
	}
}

// Ready tells whether the head of a message stands where the next one may begin: then it is worth calling Next.
func (c *Channel) Ready() bool {
	r := &c.recv
	if len(r.ring) == 0 {
		return false
	}
	_, head := r.head(r.pos, r.generation)
	if !head {
		_, head = r.headAnew()
	}
	return head
}

// head tells whether the head of a message stands at a line, and how long its body is.
func (i *inRing) head(line int, generation uint64) (n int, there bool) {
	if line == i.lines {
		return 0, false
	}
	w := loadWord(i.ring, line*lineSize)
	n = int(w & lengthMask)
	return n, w == headWord(generation, n)
}

// headAnew is head of another lap. Before a message of a lap has been read there is no other.
func (i *inRing) headAnew() (n int, there bool) {
	n, there = i.head(0, i.generation+lapStep)
	return n, there && i.pos > 0
}

// look looks for a message at a place: for its head, and for all of it, with a body of n bytes.
func (i *inRing) look(p place) (n int, head, whole bool) {
	if n, head = i.head(p.pos, p.generation); !head {
		return 0, false, false
	}
	// A length that cannot be has no tail, ever: what stands there is older payload.
	need := linesOf(n)
	return n, true, n <= i.maxBody && p.pos+need <= p.lines && loadWord(i.ring, (p.pos+need)*lineSize-8) == p.generation
}

// Next gives the next message if all of it is there; a message whose head alone is there is counted (Stats.HeadsNoTail), and the
// caller decides how often to drive the queue pair and look again. It gives the same message until Release.
//
// The body is the ring's own memory. It stays until Release, but the peer could write there at any time, so whatever is read
// twice must be copied first. After an error, which names what the peer did wrong, the channel must be failed. Next does not
// wait, and ends whatever the peer writes meanwhile.
func (c *Channel) Next() (kind Kind, body []byte, ok bool, err error) {
	r := &c.recv
	r.current = 0 // the peer may have changed what Next gave before
	for c.state == StateOpen {
		p, anew := r.place, false
		n, head, whole := r.look(p)
		if !whole && p.pos > 0 { // even if a head stands here: payload of an earlier lap could look like one
			var headAnew bool
			p.lap()
			n, headAnew, whole = r.look(p)
			head, anew = head || headAnew, true
		}
		if !whole {
			if head {
				c.stats.HeadsNoTail++
			}
			return 0, nil, false, nil
		}
		at, need := p.pos*lineSize, linesOf(n)
		header := binary.LittleEndian.Uint64(r.ring[at+8:])
		if ended := int(header >> endedBit); ended != p.before() {
			if anew && ended > p.ended && ended <= p.lines {
				return 0, nil, false, nil // what is before it comes later
			}
			return 0, nil, false, violation("the message at line %d says that a lap ended at line %d, where one ended at %d", p.pos, ended, p.before())
		}
		if r.place = p; anew {
			r.expected.lines = nil // of the lap that has ended
			r.begun()
		}
		k := header >> 32 & 0xff
		if int(r.consumed-r.told)+need > r.lines {
			return 0, nil, false, violation("a message of %d lines, with %d of %d lines in use", need, r.consumed-r.told, r.lines)
		}
		if err := c.send.credited(uint32(header)); err != nil {
			return 0, nil, false, err
		}
		c.send.hold = header>>holdBit&1 != 0
		switch {
		case header>>(holdBit+1)&(1<<(endedBit-holdBit-1)-1) != 0:
			return 0, nil, false, violation("a header of %#x", header)
		case !Kind(k).inner():
			r.current, r.body = need, n
			return Kind(k), r.ring[at+bodyAt : at+bodyAt+n : at+bodyAt+n], true, nil
		case k == uint64(credit) && n == 0:
			r.advance(need)
		case k == uint64(enlarge) || k == uint64(shrink):
			if err := c.asked(Kind(k), r.ring[at+bodyAt:at+bodyAt+n]); err != nil {
				return 0, nil, false, err
			}
		case k == uint64(large) && r.large != nil:
			return c.nextLarge(r.ring[at+bodyAt : at+bodyAt+n])
		default:
			return 0, nil, false, violation("a message of kind %#x with %d bytes", k, n)
		}
	}
	return 0, nil, false, nil
}

// Take is Next, a copy and Release in one, and the counterpart of Put: it receives the next message if that has this kind, its body begins with
// this word, and the payload behind it has room in buf. n is the payload's length. Where it takes nothing, Next tells why. k is a kind of the layer above.
func (c *Channel) Take(k Kind, first uint64, buf []byte) (n int, ok bool) {
	r, s := &c.recv, &c.send
	if r.expected.lines == nil || loadWord(r.expected.lines, 0) != r.expected.head {
		if !c.expectThis() {
			return 0, false
		}
	}
	m := r.expected.lines
	n = r.expected.body - wordSize
	tail, header := loadWord(m, len(m)-wordSize), words.Get(m, wordSize)
	count := uint32(header)
	if tail != r.expected.at.generation || header>>32 != uint64(k)|r.expected.before || s.hold || count-s.freed > s.sent-s.freed ||
		words.Get(m, bodyAt) != first || uint(n) > uint(len(buf)) {
		return 0, false
	}
	if n == wordSize { // as many messages are
		words.Put(buf, 0, words.Get(m, bodyAt+wordSize))
	} else {
		words.Copy(buf[:n:n], m[bodyAt+wordSize:])
	}
	s.freed, s.late = count, false
	r.current = 0
	if r.place = r.expected.at; r.pos == 0 {
		r.begun()
	}
	c.received(len(m)/lineSize, r.expected.body)
	return n, true
}

// expectThis expects the message whose head is there, if one is.
func (c *Channel) expectThis() bool {
	r := &c.recv
	if c.state != StateOpen {
		return false
	}
	n, head := r.head(r.pos, r.generation)
	anew := !head
	if anew {
		if n, head = r.headAnew(); !head {
			return false
		}
	}
	c.expectAt(n, anew)
	return r.expected.lines != nil
}

// Release gives the lines of the message that Next gave back to the peer; the credit travels with the next message, or with
// Progress. The body must not be touched any more. Without a message it does nothing.
func (c *Channel) Release() {
	r := &c.recv
	if r.current == 0 {
		return
	}
	if r.current < 0 {
		r.large.release(r)
	}
	c.received(r.current, r.body)
	r.current = 0
}

// received gives back the lines of a message with a body of n bytes.
func (c *Channel) received(lines, n int) {
	c.stats.Received++
	c.stats.RecvBytes += uint64(n)
	c.recv.advance(lines)
}

func (r *recvRing) advance(lines int) {
	r.expected.lines = nil
	r.consumed += uint32(lines)
	r.pos += lines
	r.last = lines
}

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{transport.ErrProtocol}, args...)...)
}
