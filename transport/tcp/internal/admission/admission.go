// Package admission decides which unauthenticated connections may stay until they have authenticated
// themselves. It does no I/O.
package admission

import "time"

// Control admits every new connection, to one of a few places. If all are taken it evicts a connection.
// Unauthenticated callers who hold on, or come back as soon as they are evicted, cannot keep the job's own
// ranks out:
//
//   - No connection is evicted before its grace period is over, which is time enough for a rank to prove
//     itself. If all are in their grace period the newcomer waits in the system's queue. That also limits how
//     many unauthenticated callers are served in a second, and so what they cost the job. A newcomer that was
//     accepted already is itself evicted: with several listeners, another one may have filled the places
//     since Wait was called.
//   - A connection that has not named this job is evicted before one that has, in its Hello or, with TLS, in
//     its ClientHello: a rank sends it at once.
//   - Of the rest, the oldest one of the address with the most connections is evicted.
//
// A rank that is evicted nevertheless is told so, and tries again. The caller serializes all calls.
type Control struct {
	Places  int
	Grace   time.Duration
	Pending []*Conn // oldest first
}

// Conn is an unauthenticated connection.
type Conn struct {
	Address string // without the port
	since   time.Time
	Greeted bool // has named this job
	Evicted bool // was evicted
}

// MaxConns is the maximum number of unauthenticated connections.
const MaxConns = 128

// Grace is the minimum time that a connection gets.
const Grace = 50 * time.Millisecond

// Wait returns how long a new connection must wait unless one leaves: 0 if there is a place, or if a
// connection can be evicted.
func (c *Control) Wait(now time.Time) time.Duration {
	if len(c.Pending) < c.Places {
		return 0
	}
	return max(0, c.Grace-now.Sub(c.Pending[0].since))
}

// Enter admits a connection, and returns the connection that it evicts, or nil. It evicts s itself if all
// places are taken by connections in their grace period. That Wait has returned 0 does not rule this out if
// there are several listeners: others may call Enter in between.
func (c *Control) Enter(s *Conn, now time.Time) (out *Conn) {
	if len(c.Pending) >= c.Places {
		if out = c.victim(now); out == nil {
			s.Evicted = true
			return s
		}
		out.Evicted = true
		c.Leave(out)
	}
	s.since = now
	c.Pending = append(c.Pending, s)
	return out
}

// victim returns the connection to evict when all places are taken, or nil if all are in their grace period.
func (c *Control) victim(now time.Time) (out *Conn) {
	of := map[string]int{}
	for _, s := range c.Pending {
		of[s.Address]++
	}
	for _, s := range c.Pending {
		if now.Sub(s.since) < c.Grace {
			break // and so are all after
		}
		if out == nil || out.Greeted && !s.Greeted || out.Greeted == s.Greeted &&
			of[s.Address] > of[out.Address] {
			out = s
		}
	}
	return out
}

// Leave frees a connection's place. A second call does nothing.
func (c *Control) Leave(s *Conn) {
	for i, x := range c.Pending {
		if x == s {
			c.Pending = append(c.Pending[:i], c.Pending[i+1:]...)
			return
		}
	}
}
