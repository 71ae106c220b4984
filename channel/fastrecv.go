package channel

import "github.com/weft-mpi/weft/internal/wordcopy"

// expected describes the next message, computed before it arrives, if its length is the one passed to Expect.
type expected struct {
	lines    []byte // its memory; nil if nothing is expected
	head     uint64
	body     int    // its length
	wrapBits uint64 // its header's upper half without the kind, which goes below: the previous wrap's end
	cursor   cursor
}

// Expect predicts that the body of the next message has n bytes. The channel computes what it can now, rather
// than when the message has arrived and the receiver waits for it.
func (c *Channel) Expect(n int) {
	r := &c.recv
	if c.state != StateOpen {
		return
	}
	c.prefetchAddr = c.nextSendAddr()
	// As reserveLines, the peer starts another wrap if the message does not fit, or if all its lines are
	// credited and the wrap is long enough.
	r.expectAt(n, r.pos+linesOf(n) > r.lines || r.pos >= pingPongLines && r.advertised == r.consumed)
}

// expectAt expects a message of n bytes after the last one, or at the start of another wrap.
func (r *recvRing) expectAt(n int, wraps bool) {
	p := r.cursor
	if wraps {
		p.wrap()
	}
	r.expected.lines = nil
	at, need := p.pos*lineSize, linesOf(n)
	if n <= r.maxBody && need <= p.lines-p.pos && int(r.consumed-r.advertised)+need <= p.lines {
		wrapBits := uint64(p.announcedEnd()) << (prevEndBit - 32)
		r.expected = expected{r.ring[at : at+need*lineSize], headWord(p.generation, n), n, wrapBits, p}
	}
}

// expectArrived expects the message whose head has arrived, if there is one.
func (r *recvRing) expectArrived() bool {
	n, head := r.head(r.pos, r.generation)
	wraps := !head
	if wraps {
		if n, head = r.headAfterWrap(); !head {
			return false
		}
	}
	r.expectAt(n, wraps)
	return r.expected.lines != nil
}

// PrefetchAddr returns the address to which an answer with a body of n bytes would be written, as far as
// Expect could tell. It may be used only for a prefetch. It is 0 if a prefetch does not pay: fetching one
// line of several costs more than it gains.
func (c *Channel) PrefetchAddr(n int) uintptr {
	if n > lineSize-overhead {
		return 0
	}
	return c.prefetchAddr
}

// nextSendAddr returns the address to which the next message is written, if it answers everything that the
// peer has sent.
func (c *Channel) nextSendAddr() uintptr {
	if !c.peerMapped {
		return 0
	}
	line := c.send.pos
	if line >= pingPongLines { // by then the peer has consumed all others
		line = 0
	}
	return c.qp.PrefetchAddr(c.send.base + uint64(line*lineSize))
}

// TryRecv combines Next, a copy and Release, as the counterpart of TrySend. It receives the next message if
// it has this kind, its body begins with this word, and the payload after the word fits in buf. n is the
// payload's length. If it receives nothing, call Next. k is a kind of the layer above.
func (c *Channel) TryRecv(k Kind, word uint64, buf []byte) (n int, ok bool) {
	r, s := &c.recv, &c.send
	if r.expected.lines == nil || loadWord(r.expected.lines, 0) != r.expected.head {
		if c.state != StateOpen || !r.expectArrived() {
			return 0, false
		}
	}
	m := r.expected.lines
	n = r.expected.body - wordSize
	tail, header := loadWord(m, len(m)-wordSize), wordcopy.Get(m, wordSize)
	count := uint32(header)
	how := header >> 32 &^ (1 << (takeoverBit - 32))
	if tail != r.expected.cursor.generation || how != uint64(k)|r.expected.wrapBits || c.peerRefuses ||
		count-s.credited > s.sent-s.credited || wordcopy.Get(m, bodyAt) != word || uint(n) > uint(len(buf)) {
		return 0, false
	}
	if n == wordSize { // the common case
		wordcopy.Put(buf, 0, wordcopy.Get(m, bodyAt+wordSize))
	} else {
		wordcopy.Copy(buf[:n:n], m[bodyAt+wordSize:])
	}
	s.credited, s.staleCreditOK = count, false
	r.current = 0
	if r.cursor = r.expected.cursor; r.pos == 0 {
		r.onWrap()
	}
	if header>>takeoverBit&1 != 0 {
		wordcopy.TakeOver(m)
	}
	c.onConsumed(len(m)/lineSize, r.expected.body)
	return n, true
}
