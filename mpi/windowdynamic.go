package mpi

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// WinCreateDynamic makes a window without memory (MPI 4.1, 12.2.4). It is collective. A rank adds memory to
// the window by Attach, and removes it by Detach, at any time. Operations address elements by the positions
// that Attach returns. These are plain numbers, which ranks may send to each other.
//
// A rank looks up what another has attached when it begins an operation there. If the memory is not mapped in
// its process, that costs two round trips the first time, and one for the first operation after each Flush.
func WinCreateDynamic[T any](c *Comm) (*Win[T], error) {
	defer c.beginLong(engine.CallWinCreateDynamic).end()
	if err := c.check(); err != nil {
		return nil, c.failColl("WinCreateDynamic", err)
	}
	_, err := bytesOf[T](nil)
	w, err := makeWindow[T](c, nil, true, err)
	return w, c.failColl("WinCreateDynamic", err)
}

// Attach makes memory of this rank part of a dynamic window (MPI 4.1, 12.2.4), and returns the position of
// its first element; the positions of the other elements follow. It is a local call. No position is ever
// reused, so a position in detached memory stays invalid. Ranks of the same host access memory of Alloc by
// loads and stores, and other memory with the help of this rank's calls. The memory of buf must stay in
// place, and must not be freed, until it is detached. A rank can have 4096 slices attached at a time, of up
// to 1<<34 elements each.
func (w *Win[T]) Attach(buf []T) (at int, err error) {
	mem, wrong := bytesOf(buf)
	if len(buf) > maxAttached {
		wrong = fmt.Errorf("%w: %d elements; %d at most are attached at a time", ErrCount, len(buf),
			maxAttached)
	}
	err = w.base().run(engine.CallAttach, NoPeer, func(w *window) (err error) {
		if err = w.checkDynamic(); err == nil {
			err = wrong
		}
		if err == nil {
			at, err = w.attach(mem)
		}
		return err
	})
	return at, err
}

func (w *window) attach(mem []byte) (int, error) {
	if len(mem) > 0 && w.w.Type().IsWord() && uintptr(unsafe.Pointer(&mem[0]))%uintptr(w.elem) != 0 {
		return 0, fmt.Errorf("%w: elements of %d bytes at an address that is no multiple of that are no "+
			"place for atomics", ErrBuffer, w.elem)
	}
	at, err := w.w.Attach(mem)
	if errors.Is(err, engine.ErrManyAttached) || errors.Is(err, engine.ErrAttachedTooOften) {
		err = fmt.Errorf("%w: %w", ErrBuffer, err)
	}
	return at, err
}

// maxAttached bounds the elements of an attachment.
const maxAttached = 1 << engine.AttachedShift

// Detach removes memory from a dynamic window (MPI 4.1, 12.2.4), by the position that Attach returned.
// Operations that other ranks begin on it afterwards fail there, with ErrRange. Detach waits for the
// operations that they have already begun, until they have called Flush or closed the epoch. Then the memory
// belongs to the caller again.
//
// If a rank of the window fails in the meantime, the error is ErrProcFailed, because that rank may still
// access the memory. The memory must then stay in place until Free, or until a later Detach succeeds. The
// same holds if the context of the handle ends first.
func (w *Win[T]) Detach(at int) error {
	return w.base().run(engine.CallDetach, NoPeer, func(w *window) error {
		if err := w.checkDynamic(); err != nil {
			return err
		}
		err := w.w.Detach(at, w.via.canceller)
		if errors.Is(err, engine.ErrNothingAttached) {
			err = fmt.Errorf("%w: %w at position %d of this rank, or its first element is not there",
				ErrRange, err, at)
		}
		return err
	})
}

func (w *window) checkDynamic() error {
	if !w.dynamic {
		return fmt.Errorf("%w: the window is not one of WinCreateDynamic", ErrWin)
	}
	return nil
}

// attachedAt finds n elements of a rank's attachment.
func (w *window) attachedAt(rank, at, n int) (*engine.Target, int, error) {
	t, err := w.w.Target(rank).Hold(at, w.via.canceller)
	if errors.Is(err, engine.ErrNothingAttached) {
		err = fmt.Errorf("%w: %w at position %d of rank %d: it was detached, or never attached", ErrRange,
			err, at, rank)
	}
	if err != nil {
		return nil, 0, err
	}
	from, have := at%maxAttached, t.Bytes()/w.elem
	if from > have || n > have-from {
		t.Release()
		return nil, 0, fmt.Errorf("%w: %d elements from position %d on, and rank %d has attached %d there",
			ErrRange, n, at, rank, max(have-from, 0))
	}
	return t, from * w.elem, nil
}
