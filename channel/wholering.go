package channel

// A dialogue and a stream of short messages keep to the first lines of a ring, which stay in both cores'
// caches. On some processors that makes long messages slow: to write a line that the other core has read
// since takes five times as long as to read one that the other has written. Lines that have left both cores'
// own caches take neither long. So a sender that has measured it (docs/internals/adr/0106) has its long
// messages go through all of a ring that is larger than those caches.

const (
	// wholeSlot is the slot size of a ring of 1 MiB, which is large enough.
	wholeSlot    = 131_008
	wholeRingMin = RingSlots * wholeSlot
	// wholeStreamLines and wholeDialogueLines are the longest messages that keep to the first lines all the
	// same, in a stream and in a dialogue, which need not wait for a few KiB of stores.
	wholeStreamLines   = 8
	wholeDialogueLines = 64
	// shortsInARow is after how many short messages a dialogue keeps to the first lines again.
	shortsInARow = 16
)

// UseWholeRing says whether long messages go through the whole ring. A ring that is too small for that grows
// to the last phase, if that is large enough (Config.WholeRing) and the peer grants it. Only channels over
// shared memory do so.
func (c *Channel) UseWholeRing(use bool) {
	s := &c.send
	if s.wholeRing != use {
		s.wholeRing, s.shortsLeft, s.laps = use && c.peerMapped && s.large == nil, 0, 0
	}
	if !s.wholeRing || s.isWhole() || c.paused || c.wantedPhase >= 0 {
		return
	}
	last := len(c.phases) - 1
	if last < c.refusedPhase && geometry(c.phases, last).lines*lineSize >= wholeRingMin {
		c.wantedPhase = last // requested by Progress
	}
}

// KnowsWholeRing reports whether long messages go through the whole ring, and have touched all its memory.
func (c *Channel) KnowsWholeRing() bool { return c.send.wholeRing && c.send.laps > 0 }

func (s *sendRing) isWhole() bool { return s.lines*lineSize >= wholeRingMin }

// onPostedWhole notes a message of so many lines, if long messages go through the whole ring.
func (s *sendRing) onPostedWhole(lines int) {
	switch {
	case lines >= wholeDialogueLines:
		s.shortsLeft = shortsInARow
	case s.shortsLeft > 0:
		s.shortsLeft--
	}
}
