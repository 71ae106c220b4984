package channel

// A stream is message behind message, for which the sender waits for nothing but credit. Through shared memory it gets on twice as fast where the lines of
// the ring are still in the nearest caches of both ranks, and a large ring does not fit those. So the laps of a channel between two that are abreast
// (Config.Abreast) are narrow: short messages keep to the first streamLines of the ring. The receiver gives these back more often than a large ring asks for,
// and whoever does not get them back in time lets the lap be as wide as the ring (Widen): nobody waits longer for that than he likes.

const (
	// streamLines is what a narrow lap takes: 16 KiB, half of the nearest cache of most cores, beside what is sent or received.
	streamLines = 256
	// shortLines is the longest message that keeps to it. Longer ones are too few in a lap for both sides to be at work.
	shortLines = streamLines / 6
)

// reach is the line at which the present lap ends, for a message of so many lines.
func (s *sendRing) reach(need int) int {
	if s.narrow && need <= shortLines {
		return min(s.lines, streamLines)
	}
	return s.lines
}

// turn is seat for a message that keeps to a narrow lap. Where that has no lines and the next one has none either it does nothing. It alone leaves lines behind that wait in a lap
// that could go on: if the message then does not go, that must be undone, or a longer one might wait for ever.
func (s *sendRing) turn(need int) bool {
	if end := s.reach(need); end == s.lines || s.pos+need <= end {
		return s.seat(need, dataKeeps)
	}
	if _, first := s.free(); need+dataKeeps > first {
		return false
	}
	s.anew()
	return true
}

// Widen lets the present lap go on to the end of the ring, when Put has found no room. It tells whether Put may find some now.
func (c *Channel) Widen() bool {
	s := &c.send
	could := s.narrow && s.lines > streamLines && c.state == StateOpen
	s.narrow = false
	return could
}

// early tells whether a CREDIT is welcome that need not go yet. One goes like data, where there is room.
func (c *Channel) early() bool {
	r := &c.recv
	return c.send.abreast && int(r.consumed-r.told) >= streamLines/4 && r.last <= shortLines
}
