package channel

// A ring is filled in wraps. Each wrap starts at line 0 with its own generation (flags.go), and continues
// line by line, but it need not reach the end of the ring. Any message may be the first of another wrap. It
// says where the previous wrap ended, so a receiver that has reached that line and finds nothing there
// recognises the message as the next one. Lines that a wrap leaves out cost no credit.
//
// So a ping-pong, in which every message waits for the answer to the previous one, stays in the first few
// lines of the ring, which both cores have in their caches. window.go does the same for a stream over shared
// memory.

// cursor is a position in a ring.
type cursor struct {
	pos        int    // the line after the last message; the next one begins there or at line 0
	lines      int    // of the ring; 0 while there is none
	generation uint64 // of the present wrap
	prevEnd    int    // the line where the previous wrap ended
}

// wrap starts another wrap.
func (p *cursor) wrap() {
	p.pos, p.prevEnd = 0, p.pos
	p.generation += wrapStep
}

// announcedEnd returns the end of the previous wrap that the next message announces, if it is the first of
// its own; otherwise 0.
func (p *cursor) announcedEnd() int {
	if p.pos > 0 {
		return 0
	}
	return p.prevEnd
}

// pingPongLines is the minimum length of a wrap that ends although the ring has room, because the peer has
// consumed all of it. Two cores that share memory alternate fastest in one to four lines.
const pingPongLines = 4

// reserveLines finds contiguous lines for the next message, and leaves keep others free. It starts another
// wrap if the present one has none, or should better end.
func (s *sendRing) reserveLines(need, keep int) bool {
	ahead, first := s.freeLines()
	if need <= ahead && !(s.credited == s.sent && s.pos >= pingPongLines) {
		return need+keep <= ahead+first
	}
	if need+keep > first {
		return false
	}
	s.startWrap()
	if s.large != nil {
		s.large.reclaimCredited(s) // at least once per wrap, before a count of lines can overflow
	}
	return true
}

// startWrap starts another wrap, in which no line is known to be free yet. A reservation in the previous one
// is dropped.
func (s *sendRing) startWrap() {
	s.untaken = max(s.untaken-s.pos, 0)
	s.wrap()
	s.wrapStart, s.freeAhead, s.freeAfterWrap, s.reserved, s.windowed = s.sent, 0, 0, 0, s.bothPolling
}

// freeLines returns how many lines are free from the next one on, and from line 0 on for another wrap. While
// lines of the previous wrap are not yet credited, the present wrap may use those that are, and no other wrap
// may start: at most two wraps have uncredited lines.
func (s *sendRing) freeLines() (ahead, first int) {
	if unread := int32(s.wrapStart - s.credited); unread > 0 {
		return s.prevEnd - int(unread) - s.pos, 0
	}
	if s.credited == s.sent {
		return s.lines - s.pos, s.lines
	}
	return s.lines - s.pos, int(s.credited - s.wrapStart)
}

// freeRun returns how many lines messages as long as the last one may use before the free lines are counted
// again.
func (s *sendRing) freeRun(last int) int {
	ahead, first := s.freeLines()
	ahead = min(ahead, s.windowEnd(last)-s.pos)
	return min(ahead, ahead+first-dataReserve)
}
