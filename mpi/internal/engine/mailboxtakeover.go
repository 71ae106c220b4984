package engine

// mailboxWrites has what copies of long messages into a mailbox take. On some processors they take a fifth of
// the time if the receiver takes over the lines that it has read (docs/internals/adr/0106). The sender asks
// for that in the message where it is so.
type mailboxWrites struct {
	writes
	// by slot, up to which length the lines have been taken over before the slot is free again
	taken [mailboxDepthMany]int
}

const (
	// takenOverMin is the length of the shortest message whose lines are taken over: stores of less wait in
	// the sender's processor while it goes on.
	takenOverMin = 2 << 10
	// mailboxTakeover is the bit of a message's acknowledgement that asks for it.
	mailboxTakeover = 1 << 63
)

// asks returns what asks the receiver to take over the lines of the next message.
func (w *mailboxWrites) asks() uint64 {
	if w.takeover.Ask() {
		return mailboxTakeover
	}
	return 0
}

// wroteLongLocked notes that a long message of n bytes was written, and the sample of it that began then.
func (m *Mailboxes) wroteLongLocked(b *mailbox, began int64, n int) {
	m.e.mu.assertHeld()
	w := &b.writes
	slot := &w.taken[m.exchange&uint64(m.depth-1)]
	taken := *slot >= n
	if *slot = max(*slot, n); !w.takeover.Ask() {
		*slot = 0
	}
	if began != 0 {
		w.end(&m.e.hub.clock, began, n, taken)
	}
}
