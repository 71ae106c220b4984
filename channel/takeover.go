package channel

// On some processors it takes a core five times as long to write a line that another core has read since as
// one that another core has written (docs/internals/adr/0106). A sender that has measured it asks the
// receivers of its longer messages to take over their lines: to own each, by writing to it what is there,
// before it tells that they are consumed.

// takeoverLines is the shortest message whose lines a receiver takes over.
const takeoverLines = 17

// AskTakeover has the receiver of longer messages take over their lines, if the peer's memory is mapped.
func (c *Channel) AskTakeover(ask bool) {
	if s := &c.send; s.takeover != (ask && c.peerMapped) {
		s.takeover, s.untaken = !s.takeover, s.lines
	}
}

// Takeover reports whether AskTakeover has had its effect: the lines that are written have been taken over.
func (c *Channel) Takeover() bool { return c.send.takeover && c.send.untaken == 0 }

// asksTakeover returns what asks for it in the header of a message of so many lines.
func (s *sendRing) asksTakeover(lines int) uint64 {
	if !s.takeover || lines < takeoverLines {
		return 0
	}
	return 1 << takeoverBit
}
