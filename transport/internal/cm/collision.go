package cm

// Collision decides between connections that two ranks begin to each other. When both begin one at the same
// time, that of the lower rank stays. The zero value is ready for use. It does no I/O.
type Collision struct {
	state State
}

// State is the state of the connection of two ranks.
type State uint8

const (
	None       State = iota // no connection; left when either side begins one
	Dialing                 // ours is under way; left by its end, by Commit, or by accepting the peer's
	Committing              // the peer has accepted ours, which now stays; left by its end
	Accepting               // the peer's was accepted and is being made; left by its end
	Connected               // there is one; left when it is released
)

// Dial reports whether to begin a connection now. If not, wait for the one that exists or is being made.
func (c *Collision) Dial() bool {
	if c.state != None {
		return false
	}
	c.state = Dialing
	return true
}

// Commit notes that the peer has accepted our connection. It returns false if this end has accepted the
// peer's meanwhile: then ours must be dropped.
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

// Dialed notes how our own connection ended. It returns false if the peer's connection had already replaced
// ours.
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

// Released notes that the connection has ended.
func (c *Collision) Released() {
	if c.state == Connected {
		c.state = None
	}
}

// State returns the state.
func (c *Collision) State() State { return c.state }
