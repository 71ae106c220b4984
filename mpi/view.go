package mpi

import (
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// View is an ordered selection of elements of a slice: a column of a matrix, a block of an array, the
// elements of an index set, or a selection of the elements of another view. It refers to the slice and copies
// nothing. The zero View has no elements. A View whose arguments do not fit its slice has no elements either,
// and every call that takes it returns the reason.
type View[T any] struct {
	first  *T // of the slice
	layout layout.Layout
	wrong  *error // nil for nothing; a View is passed by value, and so is small
}

// Strided selects count blocks of block elements. The first block begins at the beginning of data, and blocks
// begin stride elements apart. With a negative stride, the blocks come from the last to the first (MPI 4.1,
// 5.1.2, MPI_Type_vector).
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

// Strided is like the function Strided, but selects from the elements of the view, in the view's order.
func (v View[T]) Strided(count, block, stride int) View[T] {
	l, err := layout.Strided(v.Len(), unitOf[T](), count, block, stride)
	return v.selected(l, err)
}

// Sub is like the function Sub, but selects from the elements of the view, in the view's order.
func (v View[T]) Sub(shape, start, size []int) View[T] {
	l, err := layout.Sub(v.Len(), unitOf[T](), shape, start, size)
	return v.selected(l, err)
}

// Indexed is like the function Indexed, but selects from the elements of the view, in the view's order.
func (v View[T]) Indexed(at, length []int) View[T] {
	l, err := layout.Indexed(v.Len(), unitOf[T](), at, length)
	return v.selected(l, err)
}

func viewOf[T any](first *T, l layout.Layout, err error) View[T] {
	if err != nil {
		return View[T]{wrong: badSelection(err)}
	}
	return View[T]{first: first, layout: l}
}

// badSelection is what is wrong with a view or a place of which the arguments do not fit.
func badSelection(err error) *error {
	err = fmt.Errorf("%w: %w", ErrCount, err)
	return &err
}

// selected makes a selection of the view's elements a view of its slice.
func (v *View[T]) selected(l layout.Layout, err error) View[T] {
	if v.wrong != nil {
		return View[T]{wrong: v.wrong}
	}
	if err == nil {
		l = l.Of(&v.layout)
	}
	return viewOf(v.first, l, err)
}

// err is what is wrong with the view.
func (v *View[T]) err() error {
	if v.wrong != nil {
		return *v.wrong
	}
	return nil
}

// unitOf is the size of an element in a layout, which counts those of no bytes too.
func unitOf[T any]() int { return max(sizeOf[T](), 1) }

// Len is the number of elements.
func (v View[T]) Len() int { return v.layout.Bytes() / unitOf[T]() }

// Pack copies the elements, in the view's order, to dst, as many as fit. It returns the number of elements
// copied.
func (v View[T]) Pack(dst []T) int {
	dst = dst[:min(v.Len(), len(dst))]
	if v.isPlain() {
		v.layout.Gather(v.base(), memory(dst))
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
		v.layout.Scatter(v.base(), memory(src))
		return len(src)
	}
	for done := 0; done < len(src); {
		done += copy(v.span(done), src[done:])
	}
	return len(src)
}

// isPlain tells whether elements may be copied as bytes.
func (v *View[T]) isPlain() bool { return lastKnown[T]() || checkElement[T]() == nil }

// span is the elements from a place of the view's order on that lie together.
func (v *View[T]) span(at int) []T {
	from, n := v.layout.Span(at * unitOf[T]())
	return unsafe.Slice((*T)(unsafe.Add(v.base(), from/unitOf[T]()*sizeOf[T]())), n/unitOf[T]())
}

// base is the memory that the layout is of.
func (v *View[T]) base() unsafe.Pointer { return unsafe.Pointer(v.first) }

// whole returns the elements as a slice, if they lie together in order.
func (v *View[T]) whole() ([]T, bool) {
	if v.layout.Apart() {
		return nil, false
	}
	if v.layout.Bytes() == 0 {
		return nil, true
	}
	return v.span(0), true
}

// together is the memory of the elements, which lie together in order.
func (v *View[T]) together() []byte {
	from, _ := v.layout.Contiguous()
	return unsafe.Slice((*byte)(unsafe.Add(v.base(), from)), v.layout.Bytes())
}

// distinct refuses a view that has an element twice: what a receive leaves there would depend on the order of
// copies.
func (v *View[T]) distinct() error {
	if at := v.layout.Twice(); at >= 0 {
		return fmt.Errorf("%w: the view has element %d of its slice twice", ErrBuffer, at/unitOf[T]())
	}
	return nil
}

// pieces lists the memory of the elements, in order.
func (v *View[T]) pieces() [][]byte {
	var list [][]byte
	for at := 0; at < v.Len(); {
		span := v.span(at)
		list = append(list, memory(span))
		at += len(span)
	}
	return list
}
