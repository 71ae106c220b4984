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
func (r *resizer) ShrinkIfIdle() error {
	c := r.c
	d := &r.demand
	largest, stalls := max(d.largest, d.previous), d.stalls
	*d = demand{previous: d.largest}
	if c.state != StateOpen || r.paused || r.wantedPhase >= 0 || stalls > 0 {
		return nil
	}
	for p := range c.send.phase {
		s := geometry(c.phases, p)
		// above that the phase would be asked for again
		if largest <= min(c.conf.limit(p, s.slot), s.body()) {
			return r.requestPhase(p)
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
func (r *resizer) onCreditStall(need int) {
	c := r.c
	s := &c.send
	if s.creditStalled {
		return
	}
	s.creditStalled = true
	c.stats.Stalls++
	if s.large != nil || c.peerMapped && s.phase > 0 && need*enoughInFlight <= s.lines {
		return
	}
	r.growAfterStalls()
}

// growAfterStalls notes that the ring which a phase changes ran out of credits.
func (r *resizer) growAfterStalls() {
	if r.demand.stalls++; r.demand.stalls == stallLimit && r.c.send.phase+1 < r.refusedPhase {
		r.wantedPhase = r.c.send.phase + 1 // Progress asks
		r.pause()
	}
}

// BatchOverflowed counts the times that messages that would have shared a slot found it too small. If that
// happens often, the channel asks for the next phase as soon as nothing is in flight. Unlike after credit
// stalls, it goes on sending until then (E11). A channel that keeps its small ring does not ask.
func (r *resizer) BatchOverflowed() {
	c := r.c
	if c.send.large != nil {
		return
	}
	if r.demand.stalls++; r.demand.stalls == stallLimit && !r.paused && r.wantedPhase < 0 &&
		c.send.phase+1 < r.refusedPhase {
		r.wantedPhase = c.send.phase + 1
	}
}
