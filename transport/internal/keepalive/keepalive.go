// Package keepalive reports whether a connection's peer lives, and when the peer has to hear that this end
// does. It does no I/O.
package keepalive

import (
	"fmt"
	"time"
)

// MinTimeout is the shortest timeout of a peer: a process may have to wait so long for a processor.
const MinTimeout = 100 * time.Millisecond

// CheckTimeout gives a peer timeout its default, 10 s, if it is 0, and refuses one that is too short.
func CheckTimeout(d *time.Duration) error {
	switch {
	case *d == 0:
		*d = 10 * time.Second
	case *d < MinTimeout:
		return fmt.Errorf("a peer timeout of %v: must be at least %v", *d, MinTimeout)
	}
	return nil
}

// State tells, from tick to tick of a clock, whether a peer is to be told that this end lives, and
// whether it lives itself. Sending and receiving note in it that they did something; all else is done once a
// tick. A peer that ticks too says something at least once in two periods, even if it has nothing to say.
type State struct {
	Sent     bool // something was sent since the last tick
	Received bool // something has come since the last tick
	Missed   int  // ticks that counted since something has come
}

// MaxMissed is how many ticks in a row have to find that nothing has come since the one before, until a peer
// counts as lost. The silence began before the first of these spans, so it is at least so many periods long,
// and at most one more.
const MaxMissed = 4

// NewState returns the state of a new connection: the handshake counts as received.
func NewState() State { return State{Received: true} }

// Tick tells what is due. A tick that does not count may be one after a long sleep of this end.
func (p *State) Tick(counts bool) (say, lost bool) {
	say = !p.Sent
	switch {
	case p.Received:
		p.Missed = 0
	case counts:
		p.Missed++
	}
	p.Sent, p.Received = false, false
	return say, p.Missed >= MaxMissed
}

// Clock tells which ticks count.
type Clock struct {
	Period time.Duration
	Last   time.Time
	Ticks  int // that were due
}

// Tick reports whether a period has gone by, and whether it was one in which this end was running: if the
// tick is late by more than another period, the process may have been stopped, and so may its peers, together
// with it.
func (c *Clock) Tick(now time.Time) (due, counts bool) {
	since := now.Sub(c.Last)
	if !c.Last.IsZero() && since < c.Period {
		return false, false
	}
	counts = !c.Last.IsZero() && since <= 2*c.Period
	c.Last = now
	return true, counts
}
