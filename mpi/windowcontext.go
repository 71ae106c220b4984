package mpi

import "context"

// WithContext returns another handle to the window, whose calls end with ctx: they fail with an error that
// wraps ctx.Err(), and once ctx has ended, every call fails at once. Calls through other handles are not
// affected.
//
// A call that fails because ctx has ended leaves this state:
//
//   - Lock: this rank does not have the lock, and passes its turn in the queue on when the turn comes.
//   - Put, Get and the accumulates, which may wait for room or for a connection: the operation has not begun.
//     An accumulate of more than 512 bytes may have changed the first elements.
//   - FetchAndOp and CompareAndSwap: the element may have been changed, or may still be changed until a
//     Flush.
//   - The requests of Rput, Rget, Raccumulate and RgetAccumulate: the operation goes on.
//   - Flush and FlushLocal, and FlushAll and FlushLocalAll: the operations go on.
//   - Unlock, UnlockAll and Complete: the epoch is still open for the ranks where it was not closed.
//   - Fence: it counts as called, and no epoch is open.
//   - Post, Start, Wait, Free, Attach and Detach: as their comments say.
//
// The buffers of an operation that goes on belong to weft until a Flush through another handle has returned,
// or the epoch is closed. The calls that create a window end with the context of the communicator's handle,
// and the window does not inherit that context. If such a call fails, the window does not exist at this rank,
// but may exist at others.
func (w *Win[T]) WithContext(ctx context.Context) *Win[T] {
	if w.base() == nil {
		return w // whose calls say what is wrong
	}
	handle := *w
	handle.via = w.comm.WithContext(ctx)
	handle.long = handle.via.canceller != nil || w.comm.e.Hooked()
	return &handle
}

// within is the handle to a communicator whose calls end with the context of another.
func (c *Comm) within(other *Comm) *Comm {
	if other.canceller == nil {
		return c
	}
	return &Comm{commState: c.commState, canceller: other.canceller}
}
