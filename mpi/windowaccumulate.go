package mpi

import (
	"fmt"
	"reflect"
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
	_, err := w.base().update(engine.CallAccumulate, memory(src), nil, rank, at, len(src), op.code())
	return err
}

// GetAccumulate is Accumulate that also stores the previous elements in result (MPI 4.1, 12.3.4). result must
// not be accessed before the epoch is closed, or Flush or FlushLocal has returned. With NoOp src may be nil.
func (w *Win[T]) GetAccumulate(src, result []T, rank, at int, op Op[T]) error {
	_, err := w.getAccumulate(engine.CallGetAccumulate, src, result, rank, at, op)
	return err
}

// Raccumulate is Accumulate with a request (MPI 4.1, 12.3.5).
func (w *Win[T]) Raccumulate(src []T, rank, at int, op Op[T]) (Request, error) {
	return w.base().update(engine.CallRaccumulate, memory(src), nil, rank, at, len(src), op.code())
}

// RgetAccumulate is GetAccumulate with a request (MPI 4.1, 12.3.5). When the request is complete, result
// holds the previous elements.
func (w *Win[T]) RgetAccumulate(src, result []T, rank, at int, op Op[T]) (Request, error) {
	return w.getAccumulate(engine.CallRgetAccumulate, src, result, rank, at, op)
}

func (w *Win[T]) getAccumulate(call engine.Call, src, result []T, rank, at int, op Op[T]) (Request, error) {
	if len(src) == 0 && op.code() == rma.NoOp {
		src = result // any elements of the same number will do
	}
	if len(src) != len(result) {
		return Request{}, w.base().fail(call, rank, fmt.Errorf("%w: %d elements, and room for %d results",
			ErrCount, len(src), len(result)))
	}
	return w.base().update(call, memory(src), memory(result), rank, at, len(result), op.code())
}

// update executes an accumulate of n elements, or begins it.
func (w *window) update(call engine.Call, src, result []byte, rank, at, n int, code rma.Code) (Request,
	error) {
	start := w.beginCall(call, n)
	t, offset, err := w.accumulate(rank, at, n, code)
	var h engine.Request
	if err == nil && t != nil {
		switch {
		case n == 0:
		case call == engine.CallAccumulate || call == engine.CallGetAccumulate:
			err = t.Update(src, result, nil, offset, code, w.via.canceller)
		default:
			h, err = t.BeginUpdate(src, result, offset, code, w.via.canceller)
		}
		t.Release()
	}
	return w.endCall(call, start, rank, n, h, err)
}

// FetchAndOp is GetAccumulate of one element: it returns the previous value, and is complete when it returns
// (MPI 4.1, 12.3.4).
func (w *Win[T]) FetchAndOp(value T, rank, at int, op Op[T]) (T, error) {
	code := op.code()
	if there := w.word(rank, at, code); there != nil {
		v := w.w.Type().Word(there, lowest(&value, w.elem), 0, code)
		return element[T](v), nil
	}
	return w.fetch(engine.CallFetchAndOp, value, value, rank, at, code)
}

// cells has the elements of a call in heap memory.
type cells[T any] struct{ value, compare, was T }

// fetch changes one element and waits for the old value.
func (w *Win[T]) fetch(call engine.Call, value, compare T, rank, at int, code rma.Code) (was T, err error) {
	start := w.base().beginCall(call, 1)
	t, offset, err := w.base().accumulate(rank, at, 1, code)
	if err == nil && t != nil {
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
		t.Release()
	}
	_, err = w.base().endCall(call, start, rank, 1, engine.Request{}, err)
	return was, err
}

// CompareAndSwap replaces an element by swap if it is equal to compare, byte by byte, and returns the
// previous value (MPI 4.1, 12.3.4). It is complete when it returns.
func (w *Win[T]) CompareAndSwap(compare, swap T, rank, at int) (T, error) {
	if there := w.word(rank, at, rma.Swap); there != nil {
		v := w.w.Type().Word(there, lowest(&swap, w.elem), lowest(&compare, w.elem), rma.Swap)
		return element[T](v), nil
	}
	return w.fetch(engine.CallCompareAndSwap, swap, compare, rank, at, rma.Swap)
}

// word returns the address in this process of an element that is a machine word; nil if it is not mapped, or
// if any check fails.
func (w *Win[T]) word(rank, at int, code rma.Code) unsafe.Pointer {
	there := w.base().mapped(rank, at, 1)
	if there == nil || !w.w.Type().IsWord() || w.operators>>code&1 == 0 {
		return nil
	}
	return there
}

// accumulate checks an accumulate of n elements.
func (w *window) accumulate(rank, at, n int, code rma.Code) (t *engine.Target, offset int, err error) {
	switch {
	case w == nil || rank == ProcNull:
	case w.operators>>code&1 == 0 || code == rma.None:
		return nil, 0,
			fmt.Errorf("%w: a window with elements of this type accumulates by predefined operators of "+
				"the type, Replace and NoOp", ErrOp)
	case w.elem > maxUpdateElem:
		return nil, 0, fmt.Errorf("%w: accumulates take elements of up to %d bytes, not %d", ErrType,
			maxUpdateElem, w.elem)
	}
	return w.target(rank, at, n)
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

// bytesOfElement returns the memory of one element.
func bytesOfElement[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// lowest returns an element in the lowest bytes of a word.
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

// element undoes lowest.
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

// windowType returns how windows change elements of type T.
func windowType[T any]() rma.Type {
	t := rma.Type{Size: sizeOf[T]()}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		t.Kind = rma.Int
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		t.Kind = rma.Uint
	case reflect.Float32, reflect.Float64:
		t.Kind = rma.Float
	case reflect.Complex64:
		t.Kind = rma.Complex
	case reflect.Complex128:
		t.Kind = rma.Complex
		applies(&t, Sum[complex128](), Prod[complex128]())
	case reflect.Struct:
		locApplies[T](&t)
	}
	return t
}

func applies[T any](t *rma.Type, ops ...Op[T]) {
	for _, op := range ops {
		t.Apply[op.operator.Code] = op.operator.Apply
	}
}

// locApplies sets the operators of a Loc.
func locApplies[T any](t *rma.Type) {
	switch any((*T)(nil)).(type) {
	case *Loc[int8]:
		locOf[int8](t)
	case *Loc[int16]:
		locOf[int16](t)
	case *Loc[int32]:
		locOf[int32](t)
	case *Loc[int64]:
		locOf[int64](t)
	case *Loc[int]:
		locOf[int](t)
	case *Loc[uint8]:
		locOf[uint8](t)
	case *Loc[uint16]:
		locOf[uint16](t)
	case *Loc[uint32]:
		locOf[uint32](t)
	case *Loc[uint64]:
		locOf[uint64](t)
	case *Loc[uint]:
		locOf[uint](t)
	case *Loc[float32]:
		locOf[float32](t)
	case *Loc[float64]:
		locOf[float64](t)
	}
}

func locOf[V Ordered](t *rma.Type) { applies(t, MaxLoc[V](), MinLoc[V]()) }

// code returns the operator's code in messages; rma.None for an operator of NewOp and for none.
func (o Op[T]) code() rma.Code {
	if o.operator == nil {
		return rma.None
	}
	return o.operator.Code
}
