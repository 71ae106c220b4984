// Package layout describes where the elements of a view are, and copies them to contiguous memory and back.
package layout

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

// Layout is a sequence of bytes at offsets in memory: blocks within repetitions, or a list of ranges. Views
// are passed by value, so it is small: more holds everything beyond blocks at equal distances. The offsets of
// a Layout that selects from another are positions in the sequence of that one. Only the zero Layout is
// empty. Constructors check that all offsets are within the memory, so that users need not.
type Layout struct {
	n     int // total bytes
	start int // offset of the first
	block int // contiguous bytes, inside all repetitions; 0 for a list
	// from a block to the next, where there are no dims: n/block blocks
	stride int

	more *more // nil if not needed; never changed, copies of a Layout share it
}

// more has the fields that only some layouts need.
type more struct {
	dims []dim   // in place of stride: the outermost first, at least two
	list *list   // in place of blocks; nil for none
	of   *Layout // nil for memory
}

// list is at least two ranges of elements.
type list struct {
	at, length []int // without lengths, ranges have one element
	size       int   // bytes of an element
	step       int   // bytes from an element to the next; size if length is not nil
	ends       []int // positions where the ranges end, if another layout selects from the list
	ascending  bool  // no range begins before the end of the one before it
}

// dim is a repetition: of count parts, stride bytes apart.
type dim struct{ count, stride int }

const maxDims = 16

// errTooMuch is the error for sizes that exceed any memory.
var errTooMuch = errors.New("there are more elements than can be counted")

// Whole returns the layout of n elements of size bytes, beginning with element from.
func Whole(from, n, size int) Layout {
	return Layout{n: n * size, start: from * size, block: n * size}
}

// SetRows sets a zero Layout to blocks of block bytes, which begin stride bytes apart, of n bytes in total;
// with a stride of 0, to one block of n bytes. It writes the fields one by one: returning a struct would copy
// it with wider loads, which stall on the preceding word stores (store forwarding).
func (l *Layout) SetRows(n int, block, stride int32) {
	l.n, l.block, l.stride = n, int(block), int(stride)
	if stride == 0 {
		l.block = n
	}
}

// Rows reports whether l consists of blocks at equal distances in memory that do not overlap. If l is one
// block, the stride is 0.
func (l *Layout) Rows() (start, block, stride int, ok bool) {
	switch {
	case l.more != nil:
		return 0, 0, 0, false
	case l.n == l.block:
		return l.start, 0, 0, true
	}
	return l.start, l.block, l.stride, max(l.stride, -l.stride) >= l.block
}

// Elements returns the elements of a list of single elements of size bytes, counted from the beginning of the
// memory at step bytes each; nil for any other layout.
func (l *Layout) Elements(size int) (at []int, step int) {
	if l.more == nil || !l.more.list.isOf(size) || l.more.of != nil || l.start != 0 {
		return nil, 0
	}
	return l.more.list.at, l.more.list.step
}

// Strided returns count blocks of block elements, which begin stride elements apart, out of total elements of
// size bytes. With a negative stride the last block in memory comes first.
func Strided(total, size, count, block, stride int) (Layout, error) {
	if count < 0 || block < 0 {
		return Layout{}, fmt.Errorf("Strided with %d blocks of %d elements", count, block)
	}
	if count == 0 || block == 0 {
		return Layout{}, nil
	}
	distance := max(stride, -stride)
	if distance < 0 || block > total || count > 1 && distance > (total-block)/(count-1) {
		return Layout{}, fmt.Errorf("Strided takes %d blocks of %d elements, %d apart, of %d elements", count,
			block, stride, total)
	}
	if hi, lo := bits.Mul64(uint64(count), uint64(block*size)); hi > 0 || lo > 1<<62 {
		return Layout{}, errTooMuch
	}
	l := Layout{block: block * size, n: count * block * size}
	switch {
	case stride == block || count == 1:
		l.block = l.n
	default:
		l.stride = stride * size
		if stride < 0 {
			l.start = (count - 1) * distance * size
		}
	}
	return l, nil
}

// Sub returns a block of an n-dimensional array of at most total elements of size bytes. The last index
// changes fastest.
func Sub(total, size int, shape, start, extent []int) (Layout, error) {
	if len(start) != len(shape) || len(extent) != len(shape) {
		return Layout{}, fmt.Errorf("Sub with a shape of %d dimensions, a start of %d and a size of %d",
			len(shape), len(start), len(extent))
	}
	all, selected := 1, size
	for d, n := range shape {
		if n < 0 || start[d] < 0 || extent[d] < 0 || extent[d] > n-start[d] {
			return Layout{}, fmt.Errorf("Sub takes %d elements from %d on, of %d, in dimension %d", extent[d],
				start[d], n, d)
		}
		if n > 0 && all > total/n {
			return Layout{}, fmt.Errorf("Sub of an array of shape %v, and there are %d elements", shape,
				total)
		}
		all *= n
		selected *= extent[d]
	}
	if all > total {
		return Layout{}, fmt.Errorf("Sub of an array of shape %v, and there are %d elements", shape, total)
	}
	if selected == 0 {
		return Layout{}, nil
	}
	l := Layout{block: size, n: selected}
	stride := size
	var inner [maxDims]dim // the innermost first
	depth := 0
	for d := len(shape) - 1; d >= 0; d-- {
		l.start += start[d] * stride
		switch {
		case extent[d] == 1:
		case depth == 0 && l.block == stride:
			l.block *= extent[d] // everything inside is contiguous
		case depth == maxDims:
			return Layout{}, fmt.Errorf("Sub of more than %d dimensions", maxDims)
		default:
			inner[depth] = dim{extent[d], stride}
			depth++
		}
		stride *= shape[d]
	}
	slices.Reverse(inner[:depth])
	l.repeat(inner[:depth], nil)
	return l, nil
}

// repeat sets the repetitions of the blocks, and the layout that l selects from (nil for memory).
func (l *Layout) repeat(dims []dim, of *Layout) {
	l.stride, l.more = 0, nil
	switch {
	case len(dims) > 1:
		l.more = &more{dims: slices.Clone(dims), of: of}
		return
	case len(dims) == 1:
		l.stride = dims[0].stride
	}
	if of != nil {
		l.more = &more{of: of}
	}
}

// Indexed returns length[i] elements from at[i] on, for each i in turn, out of total elements of size bytes.
// Without lengths each range is one element. It keeps the slices.
func Indexed(total, size int, at, length []int) (Layout, error) {
	if length != nil && len(length) != len(at) {
		return Layout{}, fmt.Errorf("Indexed with %d places and %d lengths", len(at), len(length))
	}
	var l Layout
	end, ascending := 0, true
	for i, from := range at {
		n := 1
		if length != nil {
			n = length[i]
		}
		if n < 0 || from < 0 || from > total || n > total-from {
			return Layout{}, fmt.Errorf("Indexed takes %d elements from %d on, and there are %d", n, from,
				total)
		}
		if l.n += n * size; l.n < 0 {
			return Layout{}, errTooMuch
		}
		if n > 0 {
			ascending = ascending && from >= end
			end = from + n
		}
	}
	switch {
	case l.n == 0:
	case len(at) == 1:
		l.start, l.block = at[0]*size, l.n
	default:
		l.more = &more{list: &list{at: at, length: length, size: size, step: size, ascending: ascending}}
	}
	return l, nil
}

// Bytes returns the length of the sequence.
func (l *Layout) Bytes() int { return l.n }

// Scattered reports whether the bytes are not contiguous and in order in memory. An empty layout is
// contiguous.
func (l *Layout) Scattered() bool { return l.n != l.block || l.more != nil }

// Contiguous reports whether the bytes are contiguous in memory, in order, and where they begin.
func (l *Layout) Contiguous() (from int, ok bool) { return l.start, !l.Scattered() }

func (l *Layout) list() *list {
	if l.more == nil {
		return nil
	}
	return l.more.list
}

// of returns the layout that l selects from; nil for memory.
func (l *Layout) of() *Layout {
	if l.more == nil {
		return nil
	}
	return l.more.of
}

// manyDims returns the repetitions of blocks if there are at least two.
func (l *Layout) manyDims() []dim {
	if l.more == nil {
		return nil
	}
	return l.more.dims
}

// appendDims appends the repetitions of blocks.
func (l *Layout) appendDims(to []dim) []dim {
	if many := l.manyDims(); many != nil {
		return append(to, many...)
	}
	if l.n > l.block {
		to = append(to, dim{l.n / l.block, l.stride})
	}
	return to
}

// lengthOf returns the length of a range of a list, in bytes.
func (l *list) lengthOf(i int) int {
	if l.length == nil {
		return l.size
	}
	return l.length[i] * l.size
}

// Of returns l as a selection of the bytes of outer: offsets of l are positions in the sequence of outer.
func (l Layout) Of(outer *Layout) Layout {
	switch {
	case l.n == 0:
		return Layout{}
	case outer.block == outer.n: // a contiguous range of outer's source
		l.start += outer.start
		return l.from(outer.of())
	case outer.list() == nil && outer.manyDims() == nil:
		if m, ok := l.within(outer); ok {
			return m
		}
	}
	parent := *outer
	if p := parent.list(); p != nil && p.length != nil && p.ends == nil {
		ended := &list{at: p.at, length: p.length, size: p.size, step: p.step, ascending: p.ascending,
			ends: make([]int, len(p.at))}
		end := 0
		for i := range p.at {
			end += p.lengthOf(i)
			ended.ends[i] = end
		}
		parent.more = &more{list: ended, of: parent.more.of}
	}
	return l.from(&parent)
}

// from returns l as a selection from another layout, or from memory (nil).
func (l Layout) from(of *Layout) Layout {
	if of == nil {
		return l
	}
	m := more{of: of}
	if l.more != nil {
		m.dims, m.list = l.more.dims, l.more.list
	}
	l.more = &m
	return l
}

// within turns a selection from blocks at equal distances into a selection from the memory or layout below
// these blocks. That is possible if each of its strides leads to the same place in another block, or stays
// within the block.
func (l Layout) within(outer *Layout) (Layout, bool) {
	b, stride := outer.block, outer.stride
	if l.list() != nil {
		return l.listWithin(outer, stride)
	}
	var room [maxDims + 1]dim
	dims := l.appendDims(room[:0])
	if len(dims) == maxDims {
		return l, false
	}
	low := l.start % b
	high := low + l.block
	for _, d := range dims {
		if span := (d.count - 1) * d.stride; d.stride%b != 0 {
			low, high = low+min(span, 0), high+max(span, 0)
		}
	}
	rows := 1 // rows of outer in a block of l
	if low == 0 && high == l.block && l.block%b == 0 {
		rows = l.block / b
	} else if low < 0 || high > b {
		return l, false
	}
	m := l
	m.start = outer.start + l.start/b*stride + l.start%b
	for i, d := range dims {
		if d.stride%b == 0 {
			dims[i].stride = d.stride / b * stride
		}
	}
	if rows > 1 {
		m.block = b
		dims = append(dims, dim{rows, stride})
	}
	m.repeat(dims, outer.of())
	return m, true
}

// listWithin is within for a list of single elements, and blocks of one element that do not overlap.
func (l Layout) listWithin(outer *Layout, stride int) (Layout, bool) {
	p := l.list()
	if p.length != nil || p.step != outer.block || p.size != outer.block || l.start%outer.block != 0 ||
		max(stride, -stride) < outer.block {
		return l, false
	}
	l.start = outer.start + l.start/outer.block*stride
	l.more = &more{list: &list{at: p.at, size: p.size, step: stride, ascending: p.ascending}, of: outer.of()}
	return l, true
}

// Span returns the offset in memory of the byte at a position, and how many bytes from there on are
// contiguous.
func (l *Layout) Span(at int) (offset, n int) {
	offset, n = l.spanHere(at)
	if of := l.of(); of != nil {
		inner, m := of.Span(offset)
		return inner, min(n, m)
	}
	return offset, n
}

// spanHere is Span in the layout that l selects from.
func (l *Layout) spanHere(at int) (offset, n int) {
	if p := l.list(); p != nil {
		i, from := p.find(at)
		return l.start + p.at[i]*p.step + at - from, p.lengthOf(i) - (at - from)
	}
	offset = l.start + at%l.block
	n = l.block - at%l.block
	at /= l.block
	dims := l.manyDims()
	if dims == nil {
		return offset + at*l.stride, n
	}
	for i := len(dims) - 1; i >= 0; i-- {
		offset += at % dims[i].count * dims[i].stride
		at /= dims[i].count
	}
	return offset, n
}

// find returns the range of a list that contains a position, and the position where that range begins.
func (l *list) find(at int) (i, from int) {
	switch {
	case l.length == nil:
		i = at / l.size
		return i, i * l.size
	case l.ends != nil:
		i = sort.SearchInts(l.ends, at+1)
		return i, l.ends[i] - l.lengthOf(i)
	}
	for ; ; i++ {
		n := l.lengthOf(i)
		if at < from+n {
			return i, from
		}
		from += n
	}
}
