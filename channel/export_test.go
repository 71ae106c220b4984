package channel

// What only tests call from outside.

// TryInline is TrySend where it does nothing but an inline write into lines that are known to be free.
func (c *Channel) TryInline(k Kind, word uint64, payload []byte, more bool) bool {
	sent, _ := c.TrySend(k, word, payload, sendFlags(more)|flagInlineOnly)
	return sent
}

// TrySendSlow is TrySend without the attempt to write inline into lines that are known to be free.
func (c *Channel) TrySendSlow(k Kind, word uint64, payload []byte, flags SendFlags) (bool, error) {
	return c.trySendSlow(k, word, payload, flags)
}

// ResizeDone is resizeDone.
func (c *Channel) ResizeDone() (bool, error) { return c.resizeDone() }

// GrowFor goes on with a change of phase, and then is growFor.
func (c *Channel) GrowFor(v *Vector, head int) (Outcome, error) {
	if ready, err := c.resizeDone(); !ready {
		return Waiting, err
	}
	return c.growFor(v, head)
}

// LiftWindow has the present wrap go on beyond the cache window, and reports whether that makes a difference.
func (c *Channel) LiftWindow() bool {
	s := &c.send
	lifted := s.windowed && s.lines > windowLines && c.state == StateOpen
	s.windowed = false
	return lifted
}

// Reserve is reserve for data.
func (c *Channel) Reserve(n int) []byte { return c.reserve(n, dataReserve) }

// ReserveControl is reserve for a control message.
func (c *Channel) ReserveControl(n int) []byte { return c.reserve(n, creditLines) }

// Commit is commit.
func (c *Channel) Commit(k Kind, more bool) error { return c.commit(k, more) }
