package cm

// Collision decides between connections that two ranks begin to each other. There is to be one: when both
// begin one at the same time, that of the lower rank stays. The zero value is ready for use. It does no I/O.
type Collision struct {
	state State
}

// State is where the connection of two ranks is.
type State uint8

const (
	None       State = iota // no connection; left when either side begins one
	Dialing                 // ours is under way; left by its end, by Commit, or by accepting the peer's
	Committing              // the peer has accepted ours, and nothing displaces it any more; left by its end
	Accepting               // the peer's has been accepted and is being made; left by its end
	Connected               // there is one; left when it is released
)

// Dial reports whether to begin a connection now. If not, the one that exists or is under way is to be waited
// for.
func (c *Collision) Dial() bool {
	if c.state != None {
		return false
	}
	c.state = Dialing
	return true
}

// Commit notes that the peer has accepted our connection. It reports false if we have accepted the peer's
// meanwhile: then ours is to be dropped.
func (c *Collision) Commit() bool {
	if c.state == Dialing {
		c.state = Committing
	}
	return c.state == Committing
}

// Request reports whether to accept a connection that the peer has begun.
func (c *Collision) Request(me, peer uint32) bool {
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

// Dialed notes how our own connection ended. It reports whether that counts: it does not after the peer's has
// displaced ours.
func (c *Collision) Dialed(ok bool) bool {
	if c.state != Dialing && c.state != Committing {
		return false
	}
	c.state = None
	if ok {
		c.state = Connected
	}
	return true
}

// Accepted notes how the accepted connection ended.
func (c *Collision) Accepted(ok bool) {
	c.state = None
	if ok {
		c.state = Connected
	}
}

// Released notes that the connection is no more.
func (c *Collision) Released() {
	if c.state == Connected {
		c.state = None
	}
}

// State returns where the connection is.
func (c *Collision) State() State { return c.state }
