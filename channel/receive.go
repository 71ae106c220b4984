package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// inRing is one of our rings, into which the peer writes.
type inRing struct {
	cursor
	ring    []byte
	maxBody int // of a message in this ring

	buffer *buffer
}

// begin begins a ring at its first line.
func (i *inRing) begin(b *buffer, generation uint64) {
	i.buffer, i.ring, i.maxBody = b, b.ring(), b.body()
	i.cursor = cursor{lines: b.lines, generation: generation}
}

// recvRing is the ring that determines the order of everything that the peer sends.
type recvRing struct {
	inRing
	phase         int
	consumed      uint32 // lines, since the channel was opened and modulo 2^32
	advertised    uint32 // of these, reported to the peer
	messageCredit uint32 // the credit in the last message of Next
	threshold     int    // unadvertised lines at which a CREDIT must be sent
	leastDue      int    // with fewer unadvertised lines no CREDIT is due for them, unless creditDue is set
	// lines of the message that Next returned; 0 if there is none, -1 if it is in the large ring
	current           int
	body              int  // its length
	creditDue         bool // a CREDIT must be sent, however little is unadvertised: see onWrap
	takesOver         bool // the lines of the message that Next returned
	lastLines         int  // lines of the last message
	largeUnadvertised int  // lines of the large ring that are consumed and not advertised
	expected          expected
	large             *largeRecvRing
}

// change begins a ring at its first line. The counts of lines continue.
func (r *recvRing) change(b *buffer, generation uint64) {
	r.begin(b, generation)
	r.expected = expected{} // the old ring's memory may be used by others soon
	r.phase, r.threshold, r.creditDue = b.phase, b.threshold(), false
	r.leastDue = min(r.threshold, r.lines/2, windowLines/4)
}

// onWrap notes that a message is the first of a wrap. If the previous wrap ended early, the sender may need
// the lines that are not advertised.
func (r *recvRing) onWrap() {
	r.creditDue = r.advertised != r.consumed && r.prevEnd+linesOf(r.maxBody) <= r.lines
}

// owesCredit reports whether a CREDIT must be sent.
func (r *recvRing) owesCredit() bool {
	return int(r.consumed-r.advertised) >= r.threshold || r.creditDue || r.largeCreditDue()
}

// largeCreditDue is owesCredit for the large ring.
func (r *recvRing) largeCreditDue() bool {
	return r.largeUnadvertised > 0 && r.largeUnadvertised >= r.large.threshold
}

// Ready reports whether there is something for Next or Progress: the head of a message where the next one may
// begin, or the reply to a resize request.
func (c *Channel) Ready() bool {
	r := &c.recv
	if len(r.ring) == 0 {
		return false
	}
	_, head := r.head(r.pos, r.generation)
	if !head {
		_, head = r.headAfterWrap()
	}
	return head || c.paused && c.replyArrived()
}

// head reports whether a line has the head of a message, and how long its body is.
func (i *inRing) head(line int, generation uint64) (n int, there bool) {
	if line == i.lines {
		return 0, false
	}
	w := loadWord(i.ring, line*lineSize)
	n = int(w & lengthMask)
	return n, w == headWord(generation, n)
}

// headAfterWrap is head at the start of another wrap. A wrap without a consumed message is not followed by
// another.
func (i *inRing) headAfterWrap() (n int, there bool) {
	n, there = i.head(0, i.generation+wrapStep)
	return n, there && i.pos > 0
}

// find looks for a message at a cursor. It reports whether its head, and all of it, has arrived, and its
// body's length n.
func (i *inRing) find(p cursor) (n int, head, whole bool) {
	if n, head = i.head(p.pos, p.generation); !head {
		return 0, false, false
	}
	// A head with an impossible length is older payload: it never has a tail.
	need := linesOf(n)
	return n, true, n <= i.maxBody && p.pos+need <= p.lines &&
		loadWord(i.ring, (p.pos+need)*lineSize-8) == p.generation
}

// Next returns the next message if all of it has arrived. If only its head has arrived, Next counts that
// (Stats.HeadsWithoutTail), and the caller decides how often to drive the queue pair and call Next again.
// Next returns the same message until Release.
//
// The body is the ring's own memory. It stays valid until Release, but the peer could write to it at any
// time, so anything that is read twice must be copied first. After an error, which names what the peer did
// wrong, the channel must be failed. Next does not wait, and always terminates, whatever the peer writes
// meanwhile.
func (c *Channel) Next() (kind Kind, body []byte, ok bool, err error) {
	r := &c.recv
	r.current = 0 // the peer may have changed the previous result
	for c.state == StateOpen {
		p, wraps := r.cursor, false
		n, head, whole := r.find(p)
		if !whole && p.pos > 0 { // even if there is a head: payload of an earlier wrap could look like one
			var headAfterWrap bool
			p.wrap()
			n, headAfterWrap, whole = r.find(p)
			head, wraps = head || headAfterWrap, true
		}
		if !whole {
			if head {
				c.stats.HeadsWithoutTail++
			}
			return 0, nil, false, nil
		}
		at, need := p.pos*lineSize, linesOf(n)
		header := binary.LittleEndian.Uint64(r.ring[at+8:])
		if int(header>>prevEndBit) != p.announcedEnd() {
			return 0, nil, false, p.otherEnd(int(header>>prevEndBit), wraps)
		}
		if r.cursor = p; wraps {
			r.expected.lines = nil // of the wrap that has ended
			r.onWrap()
		}
		k := header >> 32 & 0xff
		if int(r.consumed-r.advertised)+need > r.lines {
			return 0, nil, false, violation("a message of %d lines, with %d of %d lines in use", need,
				r.consumed-r.advertised, r.lines)
		}
		if err := c.send.onCredit(uint32(header)); err != nil {
			return 0, nil, false, err
		}
		c.peerRefuses, r.takesOver = header>>refusePayloadBit&1 != 0, header>>takeoverBit&1 != 0
		r.messageCredit = uint32(header)
		switch {
		case header>>(takeoverBit+1)&(1<<(prevEndBit-takeoverBit-1)-1) != 0:
			return 0, nil, false, violation("a header of %#x", header)
		case !Kind(k).inner():
			r.current, r.body = need, n
			return Kind(k), r.ring[at+bodyAt : at+bodyAt+n : at+bodyAt+n], true, nil
		case k == uint64(credit) && n == 0:
			r.advance(need)
		case k == uint64(enlarge) || k == uint64(shrink):
			if err := c.reply.onRequest(Kind(k), r.ring[at+bodyAt:at+bodyAt+n]); err != nil {
				return 0, nil, false, err
			}
		case k == uint64(large) && r.large != nil:
			return r.large.next(c, r.ring[at+bodyAt:at+bodyAt+n])
		default:
			return 0, nil, false, violation("a message of kind %#x with %d bytes", k, n)
		}
	}
	return 0, nil, false, nil
}

// otherEnd returns the error of a message with another end of the previous wrap than where the last message
// ended. It is nil if messages of that wrap are still to arrive, so that this one is early.
func (p *cursor) otherEnd(end int, wraps bool) error {
	if wraps && end > p.prevEnd && end <= p.lines {
		return nil
	}
	return violation("the message at line %d says that a wrap ended at line %d, where one ended at %d",
		p.pos, end, p.announcedEnd())
}

// Release returns the lines of the message that Next returned to the peer; the credit travels with the next
// message, or with Progress. The body must not be accessed any more. Without a message, Release does nothing.
func (c *Channel) Release() {
	r := &c.recv
	if r.current == 0 {
		return
	}
	if r.current < 0 {
		r.large.release(r)
	} else if r.takesOver {
		wordcopy.TakeOver(r.ring[r.pos*lineSize:][:r.current*lineSize])
	}
	c.onConsumed(r.current, r.body)
	r.current = 0
}

// LastLines returns the number of lines of the last message.
func (c *Channel) LastLines() int { return c.recv.lastLines }

// onConsumed consumes the lines of a message with a body of n bytes.
func (c *Channel) onConsumed(lines, n int) {
	c.stats.Received++
	c.stats.RecvBytes += uint64(n)
	c.recv.advance(lines)
}

func (r *recvRing) advance(lines int) {
	r.expected.lines = nil
	r.consumed += uint32(lines)
	r.pos += lines
	r.lastLines = lines
}

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{transport.ErrProtocol}, args...)...)
}
