package channel

// demand is what a sender remembers of its traffic, by which its ring grows and shrinks (E11). An interval
// lasts from one ShrinkIfIdle to the next.
type demand struct {
	largest  int // body in this interval
	previous int // largest of the interval before it
	stalls   int // how often credits ran out, or slots were too small, in this interval
}

const (
	// stallLimit is how many stalls in one interval ask for the next phase.
	stallLimit = 64
	// enoughInFlight is how many messages of one length keep both ends of a ring busy.
	enoughInFlight = 32
)

// ShrinkIfIdle ends an interval. If no message needed the current slots for at least one whole interval, the
// channel asks for a ring with smaller slots; a channel without traffic goes back to the first phase. Call it
// once per half of the time after which memory should be released.
func (c *Channel) ShrinkIfIdle() error {
	d := &c.demand
	largest, stalls := max(d.largest, d.previous), d.stalls
	*d = demand{previous: d.largest}
	if c.state != StateOpen || c.paused || c.wantedPhase >= 0 || stalls > 0 {
		return nil
	}
	for p := range c.send.phase {
		s := geometry(c.phases, p)
		// above that the phase would be asked for again
		if largest <= min(c.conf.limit(p, s.slot), s.body()) {
			return c.requestPhase(p)
		}
	}
	return nil
}

// onCreditStall counts the times that the stream of messages ran out of credits, not how often that was
// looked at. need is how many lines the message takes that waits.
//
// A stream through shared memory does not count if its ring has grown and holds enough such messages: the
// peer consumes them at this moment, and the lines of a larger ring are farther from both caches. Nor does a
// stream of messages that stay in the small ring.
func (c *Channel) onCreditStall(need int) {
	s := &c.send
	if s.creditStalled {
		return
	}
	s.creditStalled = true
	c.stats.Stalls++
	if s.large != nil || c.peerMapped && s.phase > 0 && need*enoughInFlight <= s.lines {
		return
	}
	c.growAfterStalls()
}

// growAfterStalls notes that the ring which a phase changes ran out of credits.
func (c *Channel) growAfterStalls() {
	if c.demand.stalls++; c.demand.stalls == stallLimit && c.send.phase+1 < c.refusedPhase {
		c.wantedPhase = c.send.phase + 1 // Progress asks
		c.pause()
	}
}

// BatchOverflowed counts the times that messages that would have shared a slot found it too small. If that
// happens often, the channel asks for the next phase as soon as nothing is in flight. Unlike after credit
// stalls, it goes on sending until then (E11). A channel that keeps its small ring does not ask.
func (c *Channel) BatchOverflowed() {
	if c.send.large != nil {
		return
	}
	if c.demand.stalls++; c.demand.stalls == stallLimit && !c.paused && c.wantedPhase < 0 &&
		c.send.phase+1 < c.refusedPhase {
		c.wantedPhase = c.send.phase + 1
	}
}
