package channel

// quiet is what a sender remembers of its traffic in order to give large rings back (E11): the intervals between Ticks.
type quiet struct {
	largest int // body since the last Tick
	before  int // in the interval before it
	stalls  int // since the last Tick
}

// Tick ends an interval. When for a whole one and more no message needed the present slots, a ring with smaller ones is asked for;
// a channel without traffic goes back to the first phase. Call it as often as half of the time after which memory shall be given back.
func (c *Channel) Tick() error {
	q := &c.quiet
	largest, stalls := max(q.largest, q.before), q.stalls
	*q = quiet{before: q.largest}
	if c.state != StateOpen || c.paused || c.wanted >= 0 {
		return nil
	}
	if stalls > 0 {
		return nil
	}
	for p := range c.send.phase {
		if s := geometry(c.phases, p); largest <= min(c.conf.limit(p, s.slot), s.body()) { // above that it would be asked for again
			return c.want(p)
		}
	}
	return nil
}
