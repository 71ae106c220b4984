package mpi

import "errors"

// turns keep a communicator's agreements, and Shrinks, which consist of several, in the order of their calls:
// a rank begins one when it has returned from the one before.
type turns struct{ last chan struct{} }

// takeTurn gives the next turn: what to wait for, and what to close when it is over.
func (c *Comm) takeTurn() (mine <-chan struct{}, over chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine, over = c.turns.last, make(chan struct{})
	c.turns.last = over
	return mine, over
}

// inTurn carries out an agreement after those that were called before.
func (c *Comm) inTurn(agreement func() error) error {
	mine, over := c.takeTurn()
	defer close(over)
	if mine != nil {
		<-mine
	}
	return agreement()
}

// beginInTurn is inTurn with a request.
func (c *Comm) beginInTurn(op string, agreement func() error) (Request, error) {
	if err := c.checkAgreement(); err != nil {
		return Request{}, c.failColl(op, err)
	}
	h, err := c.e.BeginTask(c.context)
	if err != nil {
		return Request{}, c.failColl(op, err)
	}
	mine, over := c.takeTurn()
	c.e.Go(func() {
		defer close(over)
		if mine != nil {
			<-mine
		}
		c.e.EndTask(h, c.failColl(op, agreement()))
	})
	return Request{h, c}, nil
}

// Iagree is the non-blocking Agree. *flag is this rank's flag on entry. It belongs to weft until the request
// is complete, and is then the common flag, if there is no error or the error is ErrProcFailed. Blocking and
// non-blocking Agree and Shrink calls on a communicator take effect in the order of the calls, which must be
// the same at all ranks.
func (c *Comm) Iagree(flag *uint64) (Request, error) {
	if flag == nil {
		return Request{}, c.failColl("Iagree", errors.Join(ErrBuffer, errors.New("no flag")))
	}
	return c.beginInTurn("Iagree", func() error { return c.agree(flag) })
}

// Ishrink is the non-blocking Shrink. *into belongs to weft until the request is complete, and is then the
// new communicator if there is no error.
func (c *Comm) Ishrink(into **Comm) (Request, error) {
	if into == nil {
		return Request{}, c.failColl("Ishrink", errors.Join(ErrBuffer, errors.New("no place for the result")))
	}
	return c.beginInTurn("Ishrink", func() (err error) {
		*into, err = c.shrink()
		return err
	})
}
