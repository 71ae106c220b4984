package mpi

import (
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// maxUpdateElem is the largest element of an accumulate in bytes.
const maxUpdateElem = rma.MaxUpdate / 2

// Accumulate replaces n elements of a rank's part, from element at on, by the result of op on the element and
// the corresponding element of src (MPI 4.1, 12.3.4). n is the length of src. op is a predefined operator,
// Replace or NoOp.
//
// Each element is updated atomically with respect to the Accumulates, FetchAndOps and CompareAndSwaps of all
// ranks, and, if elements have 4 or 8 bytes, with respect to operations of sync/atomic on Local. Accumulates
// of one rank on one part take effect in the order of the calls. Accumulate may wait for room, but not for
// the target rank. src may be reused when it returns.
func (w *Win[T]) Accumulate(src []T, rank, at int, op Op[T]) error {
	start := w.base().beginCall(engine.CallAccumulate, len(src))
	t, offset, code, err := w.base().accumulate(rank, at, len(src), op.code())
	if err == nil && t != nil {
		if len(src) > 0 {
			err = t.Update(memory(src), nil, nil, offset, code, w.via.canceller)
		}
		t.Release()
	}
	w.base().endCall(engine.CallAccumulate, start, rank, len(src))
	return w.base().fail("Accumulate", rank, err)
}

// GetAccumulate is Accumulate that also stores the previous elements in result (MPI 4.1, 12.3.4). result must
// not be accessed before the epoch is closed, or Flush or FlushLocal has returned. With NoOp src may be nil.
func (w *Win[T]) GetAccumulate(src, result []T, rank, at int, op Op[T]) error {
	src, err := operands(src, result, op)
	if err != nil {
		return w.base().fail("GetAccumulate", rank, err)
	}
	start := w.base().beginCall(engine.CallGetAccumulate, len(result))
	t, offset, code, err := w.base().accumulate(rank, at, len(result), op.code())
	if err == nil && t != nil {
		if len(result) > 0 {
			err = t.Update(memory(src), memory(result), nil, offset, code, w.via.canceller)
		}
		t.Release()
	}
	w.base().endCall(engine.CallGetAccumulate, start, rank, len(result))
	return w.base().fail("GetAccumulate", rank, err)
}

// operands are what an accumulate that stores the previous elements in result combines with them. NoOp needs
// none: any of the right number will do.
func operands[T any](src, result []T, op Op[T]) ([]T, error) {
	switch {
	case len(src) == 0 && op.code() == rma.NoOp:
		return result, nil
	case len(src) != len(result):
		return nil, countsDiffer(len(src), len(result))
	}
	return src, nil
}

func countsDiffer(elements, results int) error {
	return fmt.Errorf("%w: %d elements, and room for %d results", ErrCount, elements, results)
}

// FetchAndOp is GetAccumulate of one element: it returns the previous value, and is complete when it returns
// (MPI 4.1, 12.3.4).
func (w *Win[T]) FetchAndOp(value T, rank, at int, op Op[T]) (T, error) {
	code := op.code()
	if there := w.word(rank, at, code); there != nil {
		v := w.w.Type().Word(there, lowest(&value, w.elem), 0, code)
		return element[T](v), nil
	}
	start := w.base().beginCall(engine.CallFetchAndOp, 1)
	was, err := w.fetch(value, value, rank, at, code)
	w.base().endCall(engine.CallFetchAndOp, start, rank, 1)
	return was, w.base().fail("FetchAndOp", rank, err)
}

// cells are a call's elements, in memory that stays where it is.
type cells[T any] struct{ value, compare, was T }

// fetch changes one element and waits for what was there, whatever way that takes.
func (w *Win[T]) fetch(value, compare T, rank, at int, code rma.Code) (was T, err error) {
	t, offset, code, err := w.base().accumulate(rank, at, 1, code)
	if err != nil || t == nil {
		return was, err
	}
	defer t.Release()
	c, _ := w.calls.Get().(*cells[T])
	if c == nil {
		c = &cells[T]{}
	}
	c.value, c.compare = value, compare
	var with []byte
	if code == rma.Swap {
		with = bytesOfElement(&c.compare)
	}
	err = t.FetchUpdate(bytesOfElement(&c.value), bytesOfElement(&c.was), with, offset, code,
		w.via.canceller)
	was = c.was
	w.calls.Put(c)
	return was, err
}

// CompareAndSwap replaces an element by swap if it is equal to compare, byte by byte, and returns the
// previous value (MPI 4.1, 12.3.4). It is complete when it returns.
func (w *Win[T]) CompareAndSwap(compare, swap T, rank, at int) (T, error) {
	if there := w.word(rank, at, rma.Swap); there != nil {
		v := w.w.Type().Word(there, lowest(&swap, w.elem), lowest(&compare, w.elem), rma.Swap)
		return element[T](v), nil
	}
	start := w.base().beginCall(engine.CallCompareAndSwap, 1)
	was, err := w.fetch(swap, compare, rank, at, rma.Swap)
	w.base().endCall(engine.CallCompareAndSwap, start, rank, 1)
	return was, w.base().fail("CompareAndSwap", rank, err)
}

// word is where an element is that is a word of the processor, in this process; nil where it is not, and
// where anything is to be said against the access.
func (w *Win[T]) word(rank, at int, code rma.Code) unsafe.Pointer {
	there := w.base().mapped(rank, at, 1)
	if there == nil || !w.w.Type().IsWord() || w.operators>>code&1 == 0 {
		return nil
	}
	return there
}

// accumulate checks an accumulate of n elements.
func (w *window) accumulate(rank, at, n int, code rma.Code) (t *engine.Target, offset int, _ rma.Code,
	err error) {
	switch {
	case w == nil || rank == ProcNull:
	case w.operators>>code&1 == 0 || code == rma.None:
		err = fmt.Errorf("%w: a window with elements of this type accumulates by predefined operators of "+
			"the type, Replace and NoOp", ErrOp)
	case w.elem > maxUpdateElem:
		err = fmt.Errorf("%w: accumulates take elements of up to %d bytes, not %d", ErrType, maxUpdateElem,
			w.elem)
	}
	if err == nil {
		t, offset, err = w.target(rank, at, n)
	}
	return t, offset, code, err
}

// operatorSet has a bit for each operator of a type.
func operatorSet(t *rma.Type) (set uint32) {
	for code := rma.None + 1; code < rma.Codes; code++ {
		if t.Has(code) {
			set |= 1 << code
		}
	}
	return set
}

// bytesOfElement is the memory of one element.
func bytesOfElement[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// lowest gives an element that is a word as the lowest bytes of one.
func lowest[T any](v *T, size int) uint64 {
	switch p := unsafe.Pointer(v); size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

// element is the element that lowest has made a word of.
func element[T any](v uint64) (e T) {
	switch p := unsafe.Pointer(&e); unsafe.Sizeof(e) {
	case 1:
		*(*uint8)(p) = uint8(v)
	case 2:
		*(*uint16)(p) = uint16(v)
	case 4:
		*(*uint32)(p) = uint32(v)
	default:
		*(*uint64)(p) = v
	}
	return e
}
