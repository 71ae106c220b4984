package channel

// A ring is filled in laps. Each begins at line 0, with a generation of its own, and goes on line by line; but it need not come to the end of the
// ring. Any message may be the first of another lap: it says where the lap before ended, and so the receiver, who has come to that line and finds
// nothing there, knows it for the next one. Lines that a lap leaves out are not used, and cost no credit.
//
// So a dialogue, in which every message waits for the answer to the one before, stays in the first few lines of the ring, which the nearest caches
// of both have. A stream through shared memory has something of its own to the same end (stream.go).

// place is where one is in a ring.
type place struct {
	pos        int    // the line behind the last message; the next one begins there or at line 0
	lines      int    // of the ring; 0 while there is none
	generation uint64 // of the present lap
	ended      int    // the line where the lap before ended
}

// lap begins another lap.
func (p *place) lap() {
	p.pos, p.ended = 0, p.pos
	p.generation += lapStep
}

// before is what the next message says of the lap before: where that ended, if it is the first of its own.
func (p *place) before() int {
	if p.pos > 0 {
		return 0
	}
	return p.ended
}

// dialogLines is how long a lap is at least, where the peer has read all of it when the next message is sent. Two cores that share memory take turns at
// one to four lines the quickest.
const dialogLines = 4

// seat finds lines in a row for the next message, such that so many others stay free behind it. Where the present lap has none, or is better ended, it
// begins another.
func (s *sendRing) seat(need, keep int) bool {
	ahead, first := s.free()
	if need <= ahead && !(s.freed == s.sent && s.pos >= dialogLines) {
		return need+keep <= ahead+first
	}
	if need+keep > first {
		return false
	}
	s.anew()
	if s.large != nil {
		s.large.reap(s) // now and then at least, so that no count of lines goes round before it is looked at
	}
	return true
}

// anew begins another lap, of which no line is known to be free yet. What was reserved in the one before is not any more.
func (s *sendRing) anew() {
	s.lap()
	s.began, s.clear, s.again, s.reserved, s.narrow = s.sent, 0, 0, 0, s.abreast
}

// free is how many lines are free from the next one on, and from line 0 on for another lap. While lines of the lap before are not free yet the present
// one has those that are, and no more, and no other may begin: so at most two laps have lines that are not.
func (s *sendRing) free() (ahead, first int) {
	if unread := int32(s.began - s.freed); unread > 0 {
		return s.ended - int(unread) - s.pos, 0
	}
	if s.freed == s.sent {
		return s.lines - s.pos, s.lines
	}
	return s.lines - s.pos, int(s.freed - s.began)
}

// room is how many lines the next messages may take without another look, as far as is known now, if they are as long as the last one.
func (s *sendRing) room(last int) int {
	ahead, first := s.free()
	ahead = min(ahead, s.reach(last)-s.pos)
	return min(ahead, ahead+first-dataKeeps)
}
