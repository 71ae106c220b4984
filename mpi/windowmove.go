package mpi

import (
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Put writes src to a rank's part, from element at on (MPI 4.1, 12.3.1). It does not wait for a call of that
// rank. If src has 128 KiB or more and is memory of Alloc, and that rank is on the same host and waits in a
// call, it may copy a share of src. src must not be changed before the epoch is closed, or Flush or
// FlushLocal has returned.
func (w *Win[T]) Put(src []T, rank, at int) error {
	if there := w.base().alone(rank, at, len(src)); there != nil {
		copy(unsafe.Slice((*T)(there), len(src)), src)
		return nil
	}
	_, err := w.base().move(engine.CallPut, memory(src), rank, at, len(src))
	return err
}

// Get reads elements of a rank's part, from element at on, into dst (MPI 4.1, 12.3.2). It does not wait for a
// call of that rank, which may share the copying as with Put. dst holds the elements when the epoch is
// closed, or Flush or FlushLocal has returned.
func (w *Win[T]) Get(dst []T, rank, at int) error {
	if there := w.base().alone(rank, at, len(dst)); there != nil {
		copy(dst, unsafe.Slice((*T)(there), len(dst)))
		return nil
	}
	_, err := w.base().move(engine.CallGet, memory(dst), rank, at, len(dst))
	return err
}

// Rput is Put with a request (MPI 4.1, 12.3.5). When the request is complete, src may be reused; the elements
// have arrived after a Flush.
func (w *Win[T]) Rput(src []T, rank, at int) (Request, error) {
	return w.base().move(engine.CallRput, memory(src), rank, at, len(src))
}

// Rget is Get with a request (MPI 4.1, 12.3.5). When the request is complete, dst holds the elements.
func (w *Win[T]) Rget(dst []T, rank, at int) (Request, error) {
	return w.base().move(engine.CallRget, memory(dst), rank, at, len(dst))
}

// move executes a Put or a Get of n elements, or begins it.
func (w *window) move(call engine.Call, buf []byte, rank, at, n int) (Request, error) {
	start := w.beginCall(call, n)
	t, offset, err := w.target(rank, at, n)
	var h engine.Request
	if err == nil && t != nil {
		switch call {
		case engine.CallPut:
			err = t.Put(buf, offset, w.via.canceller)
		case engine.CallGet:
			err = t.Get(buf, offset, w.via.canceller)
		case engine.CallRput:
			h, err = t.BeginPut(buf, offset, w.via.canceller)
		case engine.CallRget:
			h, err = t.BeginGet(buf, offset, w.via.canceller)
		}
		t.Release()
	}
	return w.endCall(call, start, rank, n, h, err)
}

// beginCall tells the engine's Hook (traces and other observers) that an operation on n elements begins.
func (w *window) beginCall(call engine.Call, n int) (start int64) {
	if w == nil {
		return 0
	}
	return w.comm.e.Hook().BeginCall(call, n*w.elem)
}

// endCall tells the Hook that an operation on n elements of a rank's part ends, and returns the request that
// the operation has begun, if any, or its error.
func (w *window) endCall(call engine.Call, start int64, rank, n int, h engine.Request, err error) (Request,
	error) {
	if w != nil && w.comm.job.hub.Hooked() {
		w.comm.e.Hook().EndCall(call, start, w.worldRank(rank), n*w.elem)
	}
	switch {
	case err != nil:
		return Request{}, w.fail(call, rank, err)
	case h == engine.Request{}:
		return Request{}, nil
	}
	w.comm.e.Cancels.Bind(h, w.via.canceller)
	return Request{h: h, c: w.via}, nil
}

// alone returns what mapped returns if the Put or Get is so short that the caller copies alone, and nil for a
// longer one, of which the target may copy a share.
func (w *window) alone(rank, at, n int) unsafe.Pointer {
	if w == nil || n*w.elem >= engine.SharedMove {
		return nil
	}
	return w.mapped(rank, at, n)
}

// mapped is the address in this process of n elements (n > 0) of a rank's part; nil if they are not mapped,
// or if any check fails.
func (w *window) mapped(rank, at, n int) unsafe.Pointer {
	if w == nil || w.closed.Load() || w.slowPath || uint(rank) >= uint(len(w.sizes)) || n == 0 ||
		uint(at) > uint(w.sizes[rank]) || uint(n) > uint(w.sizes[rank]-at) ||
		w.access[rank].Load() < accessShared && w.epoch.Load() != epochFence {
		return nil
	}
	base := w.w.Target(rank).Base()
	if base == nil {
		return nil
	}
	return unsafe.Add(base, at*w.elem)
}

// target checks an access to n elements of a rank's part, and returns their offset in bytes. The target is
// nil for ProcNull, without an error. The caller releases it when the operation has begun.
func (w *window) target(rank, at, n int) (t *engine.Target, offset int, err error) {
	if err := w.check(); err != nil {
		return nil, 0, err
	}
	if rank == ProcNull {
		return nil, 0, nil
	}
	if err := w.checkRank(rank); err != nil {
		return nil, 0, err
	}
	if w.dynamic {
		if err := w.enter(rank); err != nil {
			return nil, 0, err
		}
		return w.attachedAt(rank, at, n)
	}
	if at < 0 || at > w.sizes[rank] || n > w.sizes[rank]-at {
		return nil, 0, fmt.Errorf("%w: %d elements from %d on, and rank %d has %d", ErrRange, n, at, rank,
			w.sizes[rank])
	}
	if err := w.enter(rank); err != nil {
		return nil, 0, err
	}
	return w.w.Target(rank), at * w.elem, nil
}

func (w *window) checkRank(rank int) error {
	if uint(rank) >= uint(len(w.sizes)) {
		return fmt.Errorf("%w: %d; the window has ranks 0 to %d", ErrRank, rank, len(w.sizes)-1)
	}
	return nil
}
