package mpi

import (
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// tracedCall is a call that the engine does not tell of itself: one on a window, or Finalize.
type tracedCall uint8

const (
	tracedFinalize tracedCall = iota
	tracedAllocate
	tracedCreate
	tracedAllocateShared
	tracedCreateDynamic
	tracedFree
	tracedAttach
	tracedDetach
	tracedPut
	tracedGet
	tracedPutView
	tracedGetView
	tracedRput
	tracedRget
	tracedAccumulate
	tracedGetAccumulate
	tracedRaccumulate
	tracedRgetAccumulate
	tracedFetchAndOp
	tracedCompareAndSwap
	tracedFence
	tracedLock
	tracedUnlock
	tracedLockAll
	tracedUnlockAll
	tracedFlush
	tracedFlushLocal
	tracedFlushAll
	tracedFlushLocalAll
	tracedPost
	tracedStart
	tracedComplete
	tracedWait
	tracedCalls // how many there are
)

// tracedNames are the names of these calls in a trace.
var tracedNames = [tracedCalls]string{"Finalize", "WinAllocate", "WinCreate", "WinAllocateShared",
	"WinCreateDynamic", "Win.Free", "Win.Attach", "Win.Detach", "Win.Put", "Win.Get", "Win.PutView",
	"Win.GetView", "Win.Rput", "Win.Rget", "Win.Accumulate", "Win.GetAccumulate", "Win.Raccumulate",
	"Win.RgetAccumulate", "Win.FetchAndOp", "Win.CompareAndSwap", "Win.Fence", "Win.Lock", "Win.Unlock",
	"Win.LockAll", "Win.UnlockAll", "Win.Flush", "Win.FlushLocal", "Win.FlushAll", "Win.FlushLocalAll",
	"Win.Post", "Win.Start", "Win.Complete", "Win.Wait"}

// firstTraced is the number that a trace has of the first of these calls: those of the engine, and its
// collectives, come before them.
var firstTraced = int(engine.Calls) + len(engine.OperationNames())

func (c tracedCall) number() uint8 { return uint8(firstTraced + int(c)) }

// traceCall writes the beginning of a call that may last, and gives what has to end it. So the trace of a job
// that is ended in it has the call. The calls that it consists of are within it. It returns nil where nothing
// is traced.
func (c *Comm) traceCall(call tracedCall) *trace.Buffer {
	if c == nil || c.commState == nil {
		return nil
	}
	return c.job.beginTraced(call, NoPeer)
}

// traceCall is that of a call on the window, which may be nil, with the rank that it names.
func (w *window) traceCall(c tracedCall, rank int) *trace.Buffer {
	if w == nil || w.comm.job.observer.Tracing() == nil {
		return nil
	}
	return w.comm.job.beginTraced(c, w.traceRank(rank))
}

func (j *job) beginTraced(c tracedCall, peer int) *trace.Buffer {
	b := j.observer.Tracing()
	if b != nil {
		b.Add(trace.CallBegin, c.number(), 0, peer, engine.AnyTag, 0)
	}
	return b
}

// endTraced ends what traceCall has begun.
func endTraced(b *trace.Buffer) {
	if b != nil {
		b.Add(trace.CallEnd, 0, 0, 0, 0, 0)
	}
}

// tracedOperation is an operation on a part of a window. It is written at its end, as one entry.
type tracedOperation struct {
	to    *trace.Buffer // nil where nothing is traced
	begun int64
}

func (w *window) traceOperation() (o tracedOperation) {
	if w == nil {
		return o
	}
	if b := w.comm.job.observer.Tracing(); b != nil {
		o = tracedOperation{b, b.Stamp()}
	}
	return o
}

// ended writes an operation on n elements of a rank's part.
func (o tracedOperation) ended(w *window, c tracedCall, rank, n int) {
	if o.to != nil && w != nil {
		o.to.AddCall(o.begun, c.number(), w.traceRank(rank), engine.AnyTag, n*w.elem)
	}
}

// traceRank is how a trace names a rank of the window: by its number in the world.
func (w *window) traceRank(rank int) int {
	if w == nil || w.checkRank(rank) != nil {
		return NoPeer
	}
	return w.comm.worldRank(rank)
}
