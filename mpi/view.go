package mpi

import (
	"cmp"
	"fmt"
	"slices"
)

// View is a selection of elements of a slice, in an order of its own: a column of a matrix, a block of an
// array, the elements of an index set. It refers to the slice and copies nothing. The zero View has no
// elements. A View whose arguments do not fit its slice has no elements either, and every call that is given
// it returns the reason.
type View[T any] struct {
	data  []T
	start int       // the first element
	dims  []viewDim // repeat what is inside them, the outermost first
	block int       // elements that lie together, inside all dims

	at, length []int // of Indexed, which has no dims

	n   int // elements in all
	err error
}

// viewDim is a repetition: of count parts, stride elements apart.
type viewDim struct{ count, stride int }

// Strided is count blocks of block elements. Blocks begin stride elements apart, the first one at the
// beginning of data. With a negative stride the blocks come from the last to the first (MPI 4.1, 5.1.2,
// MPI_Type_vector).
func Strided[T any](data []T, count, block, stride int) View[T] {
	if count < 0 || block < 0 {
		return View[T]{err: fmt.Errorf("%w: Strided with %d blocks of %d elements", ErrCount, count, block)}
	}
	if count == 0 || block == 0 {
		return View[T]{}
	}
	distance := max(stride, -stride)
	if distance < 0 || block > len(data) || count > 1 && distance > (len(data)-block)/(count-1) {
		return View[T]{err: fmt.Errorf("%w: Strided takes %d blocks of %d elements, %d apart, of %d elements",
			ErrCount, count, block, stride, len(data))}
	}
	v := View[T]{data: data, block: block, n: count * block}
	switch {
	case stride == block || count == 1:
		v.block = v.n
	default:
		v.dims = []viewDim{{count, stride}}
		if stride < 0 {
			v.start = (count - 1) * distance
		}
	}
	return v
}

// Sub is a block of an n-dimensional array, whose last index changes fastest: the elements with indices from
// start to start + size in each dimension. Their order is that of the array (MPI 4.1, 5.1.3,
// MPI_Type_create_subarray).
func Sub[T any](data []T, shape, start, size []int) View[T] {
	if len(start) != len(shape) || len(size) != len(shape) {
		return View[T]{err: fmt.Errorf("%w: Sub with a shape of %d dimensions, a start of %d and a size "+
			"of %d",
			ErrCount, len(shape), len(start), len(size))}
	}
	total := 1
	for d, n := range shape {
		if n < 0 || start[d] < 0 || size[d] < 0 || size[d] > n-start[d] {
			return View[T]{err: fmt.Errorf("%w: Sub takes %d elements from %d on, of %d, in dimension %d",
				ErrCount, size[d], start[d], n, d)}
		}
		if n > 0 && total > len(data)/n {
			return View[T]{err: fmt.Errorf("%w: Sub of an array of shape %v, and there are %d elements",
				ErrCount, shape, len(data))}
		}
		total *= n
	}
	if total > len(data) {
		return View[T]{err: fmt.Errorf("%w: Sub of an array of shape %v, and there are %d elements",
			ErrCount, shape, len(data))}
	}
	v := View[T]{data: data, block: 1, n: product(size)}
	if v.n == 0 {
		return View[T]{}
	}
	stride := 1
	for d := len(shape) - 1; d >= 0; d-- {
		v.start += start[d] * stride
		switch {
		case size[d] == 1:
		case len(v.dims) == 0 && v.block == stride:
			v.block *= size[d] // all that is inside lies together
		default:
			v.dims = append(v.dims, viewDim{size[d], stride})
		}
		stride *= shape[d]
	}
	slices.Reverse(v.dims)
	return v
}

// Indexed is length[i] elements from at[i] on, for each i in turn. Without lengths each is one element (MPI
// 4.1, 5.1.2, MPI_Type_indexed). at and length must not be changed while the View is in use.
func Indexed[T any](data []T, at, length []int) View[T] {
	if length != nil && len(length) != len(at) {
		return View[T]{err: fmt.Errorf("%w: Indexed with %d places and %d lengths", ErrCount, len(at),
			len(length))}
	}
	v := View[T]{data: data, at: at, length: length}
	for i, from := range at {
		n := v.lengthOf(i)
		if n < 0 || from < 0 || from > len(data) || n > len(data)-from {
			return View[T]{err: fmt.Errorf("%w: Indexed takes %d elements from %d on, and there are %d",
				ErrCount, n, from, len(data))}
		}
		v.n += n
	}
	return v
}

func (v *View[T]) lengthOf(i int) int {
	if v.length == nil {
		return 1
	}
	return v.length[i]
}

// Len is the number of elements.
func (v View[T]) Len() int { return v.n }

// Pack copies the elements, in the view's order, to dst: as many as there is room for. It returns their
// number.
func (v View[T]) Pack(dst []T) int {
	n := min(v.n, len(dst))
	left := dst[:n]
	v.each(func(from, count, stride, block int) bool {
		if block == 1 && count <= len(left) {
			for i := range left[:count] {
				left[i] = v.data[from]
				from += stride
			}
			left = left[count:]
			return len(left) > 0
		}
		for ; count > 0 && len(left) > 0; count-- {
			left = left[copy(left, v.data[from:from+block]):]
			from += stride
		}
		return len(left) > 0
	})
	return n
}

// Unpack copies src to the elements, in the view's order: as many as src has, or as there are. It returns
// their number.
func (v View[T]) Unpack(src []T) int {
	n := min(v.n, len(src))
	left := src[:n]
	v.each(func(from, count, stride, block int) bool {
		if block == 1 && count <= len(left) {
			for _, e := range left[:count] {
				v.data[from] = e
				from += stride
			}
			left = left[count:]
			return len(left) > 0
		}
		for ; count > 0 && len(left) > 0; count-- {
			left = left[copy(v.data[from:from+block], left):]
			from += stride
		}
		return len(left) > 0
	})
	return n
}

// each gives the elements in order, as count blocks that begin stride elements apart, until do returns false.
func (v *View[T]) each(do func(from, count, stride, block int) bool) {
	switch {
	case v.n == 0:
	case v.at != nil:
		for i, from := range v.at {
			if n := v.lengthOf(i); n > 0 && !do(from, 1, 0, n) {
				return
			}
		}
	case len(v.dims) == 0:
		do(v.start, 1, 0, v.block)
	default:
		last := len(v.dims) - 1
		v.walk(v.dims[:last], v.start, func(from int) bool {
			return do(from, v.dims[last].count,
				v.dims[last].stride, v.block)
		})
	}
}

// walk gives the beginning of each part of some dims.
func (v *View[T]) walk(dims []viewDim, from int, do func(from int) bool) bool {
	if len(dims) == 0 {
		return do(from)
	}
	for range dims[0].count {
		if !v.walk(dims[1:], from, do) {
			return false
		}
		from += dims[0].stride
	}
	return true
}

// whole returns the elements as a slice, if they lie together in order.
func (v *View[T]) whole() ([]T, bool) {
	switch {
	case v.n == 0:
		return nil, true
	case v.at == nil && len(v.dims) == 0:
		return v.data[v.start:][:v.block], true
	case len(v.at) == 1:
		return v.data[v.at[0]:][:v.n], true
	}
	return nil, false
}

// distinct refuses a view that has an element twice: what a receive leaves there would depend on the order of
// copies.
func (v *View[T]) distinct() error {
	if v.at == nil {
		// Of a Strided or a Sub only blocks that are longer than their distance overlap.
		for _, d := range v.dims {
			if distance := max(d.stride, -d.stride); distance < v.block {
				return fmt.Errorf("%w: blocks of %d elements that begin %d apart overlap", ErrBuffer,
					v.block, distance)
			}
		}
		return nil
	}
	order := make([]int, len(v.at))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v.at[a], v.at[b]) })
	end := 0
	for _, i := range order {
		if n := v.lengthOf(i); n > 0 {
			if v.at[i] < end {
				return fmt.Errorf("%w: element %d occurs twice", ErrBuffer, v.at[i])
			}
			end = v.at[i] + n
		}
	}
	return nil
}

// pieces lists the memory of the elements, in order.
func (v *View[T]) pieces() [][]byte {
	var list [][]byte
	v.each(func(from, count, stride, block int) bool {
		for range count {
			list = append(list, memory(v.data[from:from+block]))
			from += stride
		}
		return true
	})
	return list
}
