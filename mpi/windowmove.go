package mpi

import (
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Put writes src to a rank's part, from element at on (MPI 4.1, 12.3.1). It does not wait for a call of that
// rank. A rank on the same host that waits in one may copy a share of 128 KiB or more of memory of Alloc. src
// must not be changed before the epoch is closed, or Flush or FlushLocal has returned.
func (w *Win[T]) Put(src []T, rank, at int) error {
	if there := w.base().alone(rank, at, len(src)); there != nil {
		copy(unsafe.Slice((*T)(there), len(src)), src)
		return nil
	}
	start := w.base().beginCall(engine.CallPut, len(src))
	t, offset, err := w.base().target(rank, at, len(src))
	if err == nil && t != nil {
		err = t.Put(memory(src), offset, w.via.canceller)
		t.Release()
	}
	w.base().endCall(engine.CallPut, start, rank, len(src))
	return w.base().fail("Put", rank, err)
}

// Get reads elements of a rank's part, from element at on, into dst (MPI 4.1, 12.3.2). It does not wait for a
// call of that rank, which may share the copying as with Put. dst holds the elements when the epoch is
// closed, or Flush or FlushLocal has returned.
func (w *Win[T]) Get(dst []T, rank, at int) error {
	if there := w.base().alone(rank, at, len(dst)); there != nil {
		copy(dst, unsafe.Slice((*T)(there), len(dst)))
		return nil
	}
	start := w.base().beginCall(engine.CallGet, len(dst))
	t, offset, err := w.base().target(rank, at, len(dst))
	if err == nil && t != nil {
		err = t.Get(memory(dst), offset, w.via.canceller)
		t.Release()
	}
	w.base().endCall(engine.CallGet, start, rank, len(dst))
	return w.base().fail("Get", rank, err)
}

// alone is mapped where the rank does not help with so many elements.
func (w *window) alone(rank, at, n int) unsafe.Pointer {
	if w == nil || n*w.elem >= engine.SharedMove {
		return nil
	}
	return w.mapped(rank, at, n)
}

// mapped is where n elements (n > 0) of a rank's part are in this process; nil where they are not, and where
// anything is to be said against the access.
func (w *window) mapped(rank, at, n int) unsafe.Pointer {
	if w == nil || w.freed.Load() || w.long || uint(rank) >= uint(len(w.sizes)) || n == 0 ||
		uint(at) > uint(w.sizes[rank]) || uint(n) > uint(w.sizes[rank]-at) ||
		w.epochs.Load()&epochFence|w.access[rank].Load()&accessOpen == 0 {
		return nil
	}
	base := w.w.Target(rank).Base()
	if base == nil {
		return nil
	}
	return unsafe.Add(base, at*w.elem)
}

// target checks an access to n elements of a rank's part, and gives their offset in bytes. It is nil for
// ProcNull, without an error. The target is to be released when the operation has begun.
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
