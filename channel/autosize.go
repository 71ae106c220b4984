package channel

// demand is what a sender remembers of its traffic to decide when its ring grows and shrinks (E11). An
// interval lasts from one ShrinkIfIdle to the next.
type demand struct {
	largest  int // largest body in this interval
	previous int // largest body in the previous interval
	stalls   int // how often credits ran out, or slots were too small, in this interval
}

const (
	// stallLimit is the number of stalls in one interval after which the next phase is requested.
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

// onCreditStall counts how often the stream of messages ran out of credits, not how often that was checked.
// need is the number of lines of the waiting message.
//
// A stream through shared memory does not count if its ring has grown and holds enough such messages: the
// peer keeps up, and a larger ring would only fit the caches worse. A stream of messages that stay in the
// small ring does not count either.
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

// growAfterStalls counts a stall of a ring whose size depends on the phase, and requests the next phase after
// many.
func (r *resizer) growAfterStalls() {
	if r.demand.stalls++; r.demand.stalls == stallLimit && r.c.send.phase+1 < r.refusedPhase {
		r.wantedPhase = r.c.send.phase + 1 // requested by Progress
		r.pause()
	}
}

// BatchOverflowed counts how often messages did not fit the slot that they would have shared. If that happens
// often, the channel requests the next phase as soon as the credits allow (sendRequest). Unlike after credit
// stalls, it continues to send until then (E11). A channel that keeps its small ring makes no request.
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
