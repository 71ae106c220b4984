package mpi

import "context"

// WithContext gives another handle to the communicator, whose calls end with ctx: the blocking ones,
// collectives too, and the requests that were begun through it. They fail with an error that wraps ctx.Err().
// Calls through other handles are not affected, and messages do not know through which handle they were sent
// or are received.
//
// A call that fails so has given its buffer back. A receive that nothing has matched is withdrawn, and so is
// a send that waits for room or for a connection. A message that was announced to the peer and not matched
// there is taken back. What was matched is transferred to the end, and then neither its send nor its receive
// has failed: so a Send that has failed because of ctx was not received. A peer that does not answer within
// ten seconds counts as failed.
//
// When a collective ends so at one rank, the others go on waiting for it until their contexts end too. A
// collective that fails because ctx has ended counts as called, so that those after it are in step.
//
// Once ctx has ended every call through the handle fails at once. It is made once for a context, not for each
// call: it is held until ctx ends. A handle made of such a handle has the new context alone.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil || c.commState == nil {
		return c // whose calls say what is wrong
	}
	handle := &Comm{commState: c.commState}
	if ctx != nil && ctx.Done() != nil {
		handle.canceller = c.e.NewCanceller(ctx)
	}
	return handle
}

// hasCanceller tells whether the calls through this handle can end with a context.
func (c *Comm) hasCanceller() bool { return c != nil && c.canceller != nil }
