// Package keepalive decides when to send a sign of life to a peer, and when a silent peer counts as lost. It
// does no I/O.
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

// State is the keepalive state of a connection. Sending and receiving set its flags; Tick does the rest, once
// a period. A peer that ticks too sends something at least once in two periods.
type State struct {
	Sent     bool // something was sent since the last tick
	Received bool // something was received since the last tick
	Missed   int  // counting ticks since something was received
}

// MaxMissed is the number of consecutive ticks without data after which a peer counts as lost. It has then
// been silent for MaxMissed to MaxMissed+1 periods.
const MaxMissed = 4

// NewState returns the state of a new connection: the handshake counts as received.
func NewState() State { return State{Received: true} }

// Tick reports whether a sign of life is due and whether the peer is lost. counts is false for a tick after a
// long sleep of this end: it does not count against the peer.
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

// Clock decides which ticks are due and which count.
type Clock struct {
	Period time.Duration
	Last   time.Time
}

// Tick reports whether a period has passed, and whether this end was running in it: if the tick is late by
// more than another period, this process may have been stopped, and its peers with it.
func (c *Clock) Tick(now time.Time) (due, counts bool) {
	since := now.Sub(c.Last)
	if !c.Last.IsZero() && since < c.Period {
		return false, false
	}
	counts = !c.Last.IsZero() && since <= 2*c.Period
	c.Last = now
	return true, counts
}
