package mpi

import "github.com/weft-mpi/weft/mpi/internal/engine"

// longCall is a call that is told of at its beginning and its end: one on a window that may last, or
// Finalize. The zero longCall is one that nobody is told of.
type longCall struct {
	e     *engine.Engine
	call  engine.Call
	start int64
}

// beginLong tells of the beginning of a call on a communicator, which may be nil.
func (c *Comm) beginLong(call engine.Call) longCall {
	if c == nil || c.commState == nil || !c.e.Hooked() {
		return longCall{}
	}
	return longCall{c.e, call, c.e.BeginLong(call, NoPeer)}
}

// beginLong tells of the beginning of a call on the window, which may be nil, with the rank that it names.
func (w *window) beginLong(call engine.Call, rank int) longCall {
	if w == nil || !w.comm.e.Hooked() {
		return longCall{}
	}
	e := w.comm.e
	return longCall{e, call, e.BeginLong(call, w.worldRank(rank))}
}

// end tells of the end of the call.
func (l longCall) end() {
	if l.e != nil {
		l.e.EndLong(l.call, l.start)
	}
}

// beginCall tells of the beginning of an operation on n elements of a part of the window, which may be nil.
func (w *window) beginCall(call engine.Call, n int) (start int64) {
	if w == nil {
		return 0
	}
	return w.comm.e.BeginCall(call, n*w.elem)
}

// endCall tells of the end of an operation on n elements of a rank's part.
func (w *window) endCall(call engine.Call, start int64, rank, n int) {
	if w != nil && w.comm.e.Hooked() {
		w.comm.e.EndCall(call, start, w.worldRank(rank), n*w.elem)
	}
}

// worldRank is the world rank of a rank of the window; NoPeer if there is none.
func (w *window) worldRank(rank int) int {
	if w.checkRank(rank) != nil {
		return NoPeer
	}
	return w.comm.worldRank(rank)
}
