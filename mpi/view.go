package mpi

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// View is an ordered selection of elements of a slice: a column of a matrix, a block of an array, the
// elements of an index set, or a selection of the elements of another view. It refers to the slice and copies
// nothing. The zero View has no elements. A View whose arguments do not fit its slice has no elements either,
// and every call that takes it returns the reason.
type View[T any] struct {
	// The compiler keeps structs of up to four one-word fields in registers. It spills larger ones to memory
	// in each call, which costs more than copying a message of a few words.
	first    *T        // the base of the elements' offsets
	bytes    int       // total size of the elements
	rows               // the positions of the elements
	selected *selected // the positions if rows cannot describe them; else nil
}

// rows describes blocks at equal distances that do not overlap, in bytes.
type rows struct{ block, stride int32 } // stride is 0 if all bytes are contiguous

// selected describes the elements of a View or a Place. Copies share it.
type selected struct {
	layout   layout.Layout // constant
	err      error         // the mistake in the selection; then the layout has no bytes
	distinct atomic.Bool   // a check has found that no element is in it twice
}

// elements is a method of selected for the same reason as rows.layout.
func (s *selected) elements(size int) (at []int, step int) { return s.layout.Elements(size) }

func (s *selected) isDistinct() bool { return s.distinct.Load() || s.lookDistinct() }

func (s *selected) lookDistinct() bool {
	_, twice := s.layout.Twice()
	s.distinct.Store(!twice)
	return !twice
}

// Strided selects count blocks of block elements. The first block begins at the beginning of data, and blocks
// begin stride elements apart. With a negative stride, the blocks come from the last to the first (MPI 4.1,
// 5.1.2, MPI_Type_vector). Column j of a matrix m, stored by rows, is Strided(m[j:], rows, 1, columns).
func Strided[T any](data []T, count, block, stride int) View[T] {
	l, err := layout.Strided(len(data), unitOf[T](), count, block, stride)
	return viewOf(unsafe.SliceData(data), l, err)
}

// Sub selects a block of an n-dimensional array, whose last index changes fastest: the elements with indices
// from start up to but not including start + size in each dimension, in the order of the array (MPI 4.1,
// 5.1.3, MPI_Type_create_subarray).
func Sub[T any](data []T, shape, start, size []int) View[T] {
	l, err := layout.Sub(len(data), unitOf[T](), shape, start, size)
	return viewOf(unsafe.SliceData(data), l, err)
}

// Indexed selects length[i] elements from data[at[i]] on, for each i in turn. If length is nil, it selects
// one element each (MPI 4.1, 5.1.2, MPI_Type_indexed). at and length must not be changed while the View is in
// use.
func Indexed[T any](data []T, at, length []int) View[T] {
	l, err := layout.Indexed(len(data), unitOf[T](), at, length)
	return viewOf(unsafe.SliceData(data), l, err)
}

// Whole selects all elements of data, in order.
func Whole[T any](data []T) View[T] {
	return View[T]{first: unsafe.SliceData(data), bytes: len(data) * unitOf[T]()}
}

// Strided is like the function Strided, but selects from the elements of the view, in the view's order.
func (v View[T]) Strided(count, block, stride int) View[T] {
	l, err := layout.Strided(v.Len(), unitOf[T](), count, block, stride)
	return v.of(l, err)
}

// Sub is like the function Sub, but selects from the elements of the view, in the view's order.
func (v View[T]) Sub(shape, start, size []int) View[T] {
	l, err := layout.Sub(v.Len(), unitOf[T](), shape, start, size)
	return v.of(l, err)
}

// Indexed is like the function Indexed, but selects from the elements of the view, in the view's order.
func (v View[T]) Indexed(at, length []int) View[T] {
	l, err := layout.Indexed(v.Len(), unitOf[T](), at, length)
	return v.of(l, err)
}

func viewOf[T any](first *T, l layout.Layout, err error) View[T] {
	if err != nil {
		return View[T]{selected: badSelection(err)}
	}
	v := View[T]{first: first, bytes: l.Bytes()}
	start, block, stride, ok := l.Rows()
	r := rows{int32(block), int32(stride)}
	if !ok || int(r.block) != block || int(r.stride) != stride {
		v.selected = &selected{layout: l}
		return v
	}
	v.first, v.rows = (*T)(unsafe.Add(v.base(), start/unitOf[T]()*sizeOf[T]())), r
	return v
}

// badSelection returns the selection for invalid arguments.
func badSelection(err error) *selected { return &selected{err: fmt.Errorf("%w: %w", ErrCount, err)} }

// of converts a selection of the view's elements to a view of its slice.
func (v View[T]) of(l layout.Layout, err error) View[T] {
	if v.err() != nil {
		return v
	}
	if err == nil {
		var own layout.Layout
		l = l.Of(v.layout(&own))
	}
	return viewOf(v.first, l, err)
}

// err returns the mistake in the view, or nil.
func (v View[T]) err() error {
	if v.selected != nil {
		return v.selected.err
	}
	return nil
}

// Err returns what is wrong with the arguments that the View was made from; nil if they fit its slice.
func (v View[T]) Err() error { return v.err() }

// Slice returns the elements as a part of the slice that the View refers to, if they are contiguous there, in
// order.
func (v View[T]) Slice() ([]T, bool) { return v.slice() }

// layout returns the layout of the elements, relative to base. If rows describes it, it is built in own.
func (v View[T]) layout(own *layout.Layout) *layout.Layout {
	if v.selected != nil {
		return &v.selected.layout
	}
	return v.rows.layout(v.bytes, own)
}

// layout is a method of rows, not of View: calls of other packages from generic code are not inlined.
func (r rows) layout(n int, own *layout.Layout) *layout.Layout {
	own.SetRows(n, r.block, r.stride)
	return own
}

// scattered reports whether the elements, in order, are not contiguous.
func (v View[T]) scattered() bool { return v.selected != nil || v.stride != 0 }

// unitOf returns the size of an element in a layout. It is at least 1, so that elements without bytes count.
func unitOf[T any]() int { return max(sizeOf[T](), 1) }

// Len is the number of elements.
func (v View[T]) Len() int { return v.bytes / unitOf[T]() }

// Pack copies the elements, in the view's order, to dst, as many as fit. It returns the number of elements
// copied.
func (v View[T]) Pack(dst []T) int {
	dst = dst[:min(v.Len(), len(dst))]
	if v.isPlain() {
		var own layout.Layout
		v.layout(&own).Gather(v.base(), memory(dst))
		return len(dst)
	}
	for done := 0; done < len(dst); {
		done += copy(dst[done:], v.span(done))
	}
	return len(dst)
}

// Unpack copies src to the elements, in the view's order, as many as there are in both. It returns the number
// of elements copied.
func (v View[T]) Unpack(src []T) int {
	src = src[:min(v.Len(), len(src))]
	if v.isPlain() {
		var own layout.Layout
		v.layout(&own).Scatter(v.base(), memory(src))
		return len(src)
	}
	for done := 0; done < len(src); {
		done += copy(v.span(done), src[done:])
	}
	return len(src)
}

// gather copies the elements to memory where they are contiguous. Copying values of T is faster than copying
// a variable number of bytes.
func (v View[T]) gather(to unsafe.Pointer) {
	var at []int
	var step int
	if v.selected != nil {
		at, step = v.selected.elements(sizeOf[T]())
	}
	switch {
	case v.selected == nil && int(v.block) == sizeOf[T](): // a column
		for at, from := 0, 0; at < v.bytes; at, from = at+sizeOf[T](), from+int(v.stride) {
			*(*T)(unsafe.Add(to, at)) = *(*T)(unsafe.Add(v.base(), from))
		}
	case at != nil:
		for i, e := range at {
			*(*T)(unsafe.Add(to, i*sizeOf[T]())) = *(*T)(unsafe.Add(v.base(), e*step))
		}
	case v.scattered():
		var own layout.Layout
		v.layout(&own).Gather(v.base(), unsafe.Slice((*byte)(to), v.bytes))
	case v.bytes == sizeOf[T]():
		*(*T)(to) = *v.first
	default:
		copy(unsafe.Slice((*byte)(to), v.bytes), v.contiguousBytes())
	}
}

// scatter copies contiguous elements to the view.
func (v View[T]) scatter(from unsafe.Pointer) {
	var at []int
	var step int
	if v.selected != nil {
		at, step = v.selected.elements(sizeOf[T]())
	}
	switch {
	case v.selected == nil && int(v.block) == sizeOf[T]():
		for at, to := 0, 0; at < v.bytes; at, to = at+sizeOf[T](), to+int(v.stride) {
			*(*T)(unsafe.Add(v.base(), to)) = *(*T)(unsafe.Add(from, at))
		}
	case at != nil:
		for i, e := range at {
			*(*T)(unsafe.Add(v.base(), e*step)) = *(*T)(unsafe.Add(from, i*sizeOf[T]()))
		}
	case v.scattered():
		var own layout.Layout
		v.layout(&own).Scatter(v.base(), unsafe.Slice((*byte)(from), v.bytes))
	case v.bytes == sizeOf[T]():
		*v.first = *(*T)(from)
	default:
		copy(v.contiguousBytes(), unsafe.Slice((*byte)(from), v.bytes))
	}
}

// isPlain reports whether elements may be copied as bytes.
func (v View[T]) isPlain() bool { return lastKnown[T]() || checkElement[T]() == nil }

// span returns the contiguous elements from an index of the view on.
func (v View[T]) span(at int) []T {
	var own layout.Layout
	from, n := v.layout(&own).Span(at * unitOf[T]())
	return unsafe.Slice((*T)(unsafe.Add(v.base(), from/unitOf[T]()*sizeOf[T]())), n/unitOf[T]())
}

// base returns the memory of the layout.
func (v View[T]) base() unsafe.Pointer { return unsafe.Pointer(v.first) }

// slice returns the elements as a slice, if they are contiguous in order.
func (v View[T]) slice() ([]T, bool) {
	switch {
	case v.scattered():
		return nil, false
	case v.bytes == 0:
		return nil, true
	}
	return unsafe.Slice(v.first, v.Len()), true
}

// contiguousBytes returns the memory of the elements, which must be contiguous.
func (v View[T]) contiguousBytes() []byte { return unsafe.Slice((*byte)(v.base()), v.bytes) }

// isDistinct reports whether the view has no element twice.
func (v View[T]) isDistinct() bool { return v.selected == nil || v.selected.isDistinct() }

// distinct refuses a view that has an element twice: the result of a receive would depend on the order of
// copies.
func (v View[T]) distinct() error {
	if v.isDistinct() {
		return nil
	}
	at, _ := v.selected.layout.Twice()
	return fmt.Errorf("%w: the view has an element twice: %d elements from the first that it selects from",
		ErrBuffer, at/unitOf[T]())
}

// pieces lists the memory of the elements, in order.
func (v View[T]) pieces() [][]byte {
	var list [][]byte
	for at := 0; at < v.Len(); {
		span := v.span(at)
		list = append(list, memory(span))
		at += len(span)
	}
	return list
}
