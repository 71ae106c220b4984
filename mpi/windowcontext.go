package mpi

import "context"

// WithContext gives another handle to the window, whose calls end with ctx: they fail with an error that
// wraps ctx.Err(), and once ctx has ended every call fails at once. Calls through other handles are not
// affected.
// What a call leaves behind when it is given up:
//
//   - Lock: this rank has not got the lock, and gives its place in the queue away when its turn comes.
//   - Put, Get and the accumulates, which may wait for room or for a connection: the operation has not begun.
//     Of an accumulate of more than 512 bytes the first elements may be changed.
//   - FetchAndOp and CompareAndSwap: the element may be changed, also later, until a Flush.
//   - The requests of Rput, Rget, Raccumulate and RgetAccumulate: the operation goes on.
//   - Flush and FlushLocal, and those of all ranks: the operations go on.
//   - Unlock, UnlockAll and Complete: the epoch is open still, for the ranks where it was not closed.
//   - Fence: it counts as called, and no epoch is open.
//   - Post, Start and Wait, Free, Attach and Detach: as they say.
//
// The buffers of an operation that goes on belong to weft until a Flush through another handle has returned,
// or the epoch is closed. Creating a window ends with the context of the communicator's handle; which is not
// passed on to the window. It has not come about here then, but may have at others.
func (w *Win[T]) WithContext(ctx context.Context) *Win[T] {
	if w.base() == nil {
		return w // whose calls say what is wrong
	}
	handle := *w
	handle.via = w.comm.WithContext(ctx)
	handle.long = handle.via.canceller != nil || tracing.Load() != nil
	return &handle
}

// within is the handle to a communicator whose calls end with the context of another.
func (c *Comm) within(other *Comm) *Comm {
	if other.canceller == nil {
		return c
	}
	return &Comm{commState: c.commState, canceller: other.canceller}
}
