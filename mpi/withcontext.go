package mpi

import "context"

// WithContext returns another handle to the communicator, whose calls end with ctx: the blocking calls,
// including collectives, and the requests begun through the handle. When ctx ends, they fail with an error
// that wraps ctx.Err(). Calls through other handles are not affected. Any handle can receive a message that
// was sent through any other.
//
// A call that fails in this way no longer uses its buffer. A receive that nothing has matched is withdrawn,
// and so is a send that waits for room or for a connection; a short one is usually complete at once, and
// stays sent. A message that was announced to the peer but not matched there is taken back. A matched message
// is transferred completely, and neither its send nor its receive fails. So a Send that failed because of ctx
// was not received, and a Recv that did received nothing. What Mprobe has reserved can be received after the
// end of ctx. A peer that does not answer within ten seconds counts as failed.
//
// If a collective ends in this way at one rank, the other ranks wait for it until their own contexts end. A
// collective that fails because ctx has ended counts as called, so later collectives stay in step.
//
// Once ctx has ended, every call through the handle fails at once. A handle that the program drops needs no
// other release. One made from such a handle has only the new context.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil || c.commState == nil {
		return c // its calls return the error
	}
	handle := &Comm{commState: c.commState}
	if ctx != nil && ctx.Done() != nil {
		handle.canceller = c.e.Cancels.NewCanceller(ctx)
	}
	return handle
}

// withoutContext returns a handle without a context.
func (c *Comm) withoutContext() *Comm {
	if c.canceller == nil {
		return c
	}
	return &Comm{commState: c.commState}
}

// hasCanceller reports whether the calls through this handle can end with a context.
func (c *Comm) hasCanceller() bool { return c != nil && c.canceller != nil }

// within returns a handle to a communicator whose calls end with the context of another handle.
func (c *Comm) within(other *Comm) *Comm {
	if other.canceller == nil {
		return c
	}
	return &Comm{commState: c.commState, canceller: other.canceller.At(c.e)}
}
