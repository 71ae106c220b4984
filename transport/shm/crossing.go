package shm

// crossing decides between connections of the same two ranks. There is to be one; when both begin one at the same time, that of
// the lower rank stays. One such machine for each peer, guarded by the endpoint.
type crossing struct {
	state crossingState
}

type crossingState uint8

const (
	crossingNone      crossingState = iota // no connection; left by either side's beginning one
	crossingDialing                        // ours is under way; left by its end, or by accepting the peer's
	crossingAccepting                      // the peer's has been accepted and is being made; left by its end
	crossingConnected                      // there is one; left when it is released
)

// dial tells whether to begin a connection now; if not, the one that is under way or stands is to be waited for.
func (c *crossing) dial() bool {
	if c.state != crossingNone {
		return false
	}
	c.state = crossingDialing
	return true
}

// request tells whether to accept a connection that the peer has begun.
func (c *crossing) request(me, peer uint32) bool {
	switch c.state {
	case crossingNone:
	case crossingDialing:
		if me < peer {
			return false // ours stays
		}
	default:
		return false
	}
	c.state = crossingAccepting
	return true
}

// dialed notes how our own connection ended; it tells whether that decides: not when the peer's has taken its place.
func (c *crossing) dialed(ok bool) bool {
	if c.state != crossingDialing {
		return false
	}
	c.state = crossingNone
	if ok {
		c.state = crossingConnected
	}
	return true
}

// released notes that the connection is no more.
func (c *crossing) released() {
	if c.state == crossingConnected {
		c.state = crossingNone
	}
}

// made notes how the accepted connection ended.
func (c *crossing) made(ok bool) {
	c.state = crossingNone
	if ok {
		c.state = crossingConnected
	}
}
