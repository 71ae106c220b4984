package shm

import "time"

// pulse tells, from tick to tick of a clock, whether a peer is to be told that this end lives, and whether it lives itself. Sending and
// receiving note in it that they did something; all else is done once a tick. A peer that ticks too says something at least once in two
// periods, even if it has nothing to say.
type pulse struct {
	said   bool // something was sent since the last tick
	heard  bool // something has come since the last tick
	silent int  // ticks that counted since something has come
}

// ticksSilent is how many ticks in a row have to find that nothing has come since the one before, until a peer counts as lost. The silence
// began before the first of these spans, so it is at least so many periods long, and at most one more.
const ticksSilent = 4

// newPulse is that of a connection that has just been made: start-up was the last that was heard.
func newPulse() pulse { return pulse{heard: true} }

// tick tells what is due. A tick that does not count may be one behind a long sleep of this end.
func (p *pulse) tick(counts bool) (say, lost bool) {
	say = !p.said
	switch {
	case p.heard:
		p.silent = 0
	case counts:
		p.silent++
	}
	p.said, p.heard = false, false
	return say, p.silent >= ticksSilent
}

// clock tells which ticks count.
type clock struct {
	period time.Duration
	last   time.Time
}

// tick tells whether a period has gone by, and whether it was one in which this end was running: if the tick is late by more than another
// period, the process may have been stopped, and so may its peers, together with it.
func (c *clock) tick(now time.Time) (due, counts bool) {
	since := now.Sub(c.last)
	if !c.last.IsZero() && since < c.period {
		return false, false
	}
	counts = !c.last.IsZero() && since <= 2*c.period
	c.last = now
	return true, counts
}
