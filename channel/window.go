package channel

// A stream is a series of messages for which the sender waits for nothing but credit. Over shared memory it
// is twice as fast if the lines of the ring stay in both cores' first-level caches, and a large ring does not
// fit those. So if both ends poll (Config.BusyPolling), short messages keep to a window: the first
// windowLines of the ring. The receiver returns these lines more often than a large ring requires. A sender
// that does not get them back in time leaves the window for the rest of the wrap (FlagBeyondWindow), so no
// sender waits for that longer than it chooses (docs/internals/adr/0023).

const (
	// windowLines is the size of the window: 16 KiB, half of the first-level cache of most cores, beside the
	// payload.
	windowLines = 256
	// windowMaxLines is the longest message that uses the window. Too few longer ones fit to keep both sides
	// busy: where cores are far apart, a credit takes as long as several messages.
	windowMaxLines = windowLines / 16
)

// windowEnd returns the line at which the present wrap ends, for a message of need lines.
func (s *sendRing) windowEnd(need int) int {
	if s.windowed && need <= windowMaxLines {
		return min(s.lines, windowLines)
	}
	return s.lines
}

// reserveInWindow is reserveLines for a message that uses the window. If the message does not fit in the
// rest of the window, it starts another wrap, provided that enough lines at the beginning are credited;
// otherwise it does nothing. Only this function starts a wrap while the present one has lines left beyond
// the window. If the message is then not sent, the caller must undo the wrap, or a longer message might wait
// forever.
func (s *sendRing) reserveInWindow(need int) bool {
	if end := s.windowEnd(need); end == s.lines || s.pos+need <= end {
		return s.reserveLines(need, dataReserve)
	}
	if _, first := s.freeLines(); need+dataReserve > first {
		return false
	}
	s.startWrap()
	return true
}

// creditAdvisable reports whether a CREDIT is useful that is not owed yet. It is sent like data, if there is
// room.
func (c *Channel) creditAdvisable() bool {
	r := &c.recv
	return c.send.bothPolling && int(r.consumed-r.advertised) >= windowLines/4 &&
		r.lastLines <= windowMaxLines
}
