// Package crossing decides between connections that two ranks begin to each other. It does no I/O.
package crossing

// Crossing decides between connections of the same two ranks. There is to be one; when both begin one at the same time, that of
// the lower rank stays. One such machine for each peer, guarded by the endpoint.
type Crossing struct {
	state State
}

// State is where the connection of two ranks is.
type State uint8

const (
	None      State = iota // no connection; left by either side's beginning one
	Dialing                // ours is under way; left by its end, or by accepting the peer's
	Accepting              // the peer's has been accepted and is being made; left by its end
	Connected              // there is one; left when it is released
)

// Dial tells whether to begin a connection now; if not, the one that is under way or stands is to be waited for.
func (c *Crossing) Dial() bool {
	if c.state != None {
		return false
	}
	c.state = Dialing
	return true
}

// Request tells whether to accept a connection that the peer has begun.
func (c *Crossing) Request(me, peer uint32) bool {
	switch c.state {
	case None:
	case Dialing:
		if me < peer {
			return false // ours stays
		}
	default:
		return false
	}
	c.state = Accepting
	return true
}

// Dialed notes how our own connection ended; it tells whether that decides: not when the peer's has taken its place.
func (c *Crossing) Dialed(ok bool) bool {
	if c.state != Dialing {
		return false
	}
	c.state = None
	if ok {
		c.state = Connected
	}
	return true
}

// Released notes that the connection is no more.
func (c *Crossing) Released() {
	if c.state == Connected {
		c.state = None
	}
}

// Made notes how the accepted connection ended.
func (c *Crossing) Made(ok bool) {
	c.state = None
	if ok {
		c.state = Connected
	}
}

// State tells where the connection is.
func (c *Crossing) State() State { return c.state }
