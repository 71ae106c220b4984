// Package regions says which bytes of a file are a rank's, and plans how ranks read and write theirs
// together. It does no I/O.
package regions

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Regions are bytes of a file that belong to a sequence of elements. The elements have positions: byte p of
// the sequence is in element p / size. Offsets in the file and positions may have different orders. The zero
// Regions are empty.
type Regions struct {
	bytes int64
	first int64 // the lowest offset
	end   int64 // the offset after the highest

	// Runs of equal length in nested loops, from the lowest offset on ...
	run  int64
	at   int64 // the position of the first run
	dims []dim // outermost first; inside a stride, inner loops do not reach the next

	// ... or any runs, by ascending offset.
	list    []Run
	reaches []int64 // the highest end of the runs up to each; nil if no two overlap
}

// dim is a loop: each turn adds stride to the offset and step to the position.
type dim struct{ count, stride, step int64 }

// A Run is bytes that are contiguous in the file and in the sequence of elements.
type Run struct{ Off, At, Len int64 }

const maxDims = 16

var errTooFar = errors.New("the last element is beyond what a file can have")

// product multiplies numbers that are not negative.
func product(a, b int64) (int64, error) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64/2 {
		return 0, errTooFar
	}
	return int64(lo), nil
}

// A Shape describes Regions in elements, whose size is not known yet.
type Shape func(size int64) (Regions, error)

// Range is count elements from element first on.
func Range(first, count int) Shape { return Strided(first, 1, count, count) }

// Strided is count blocks of block elements, which begin stride elements apart, the first at element first.
// With a negative stride the blocks come from the last to the first.
func Strided(first, count, block, stride int) Shape {
	return func(size int64) (Regions, error) {
		distance := max(stride, -stride)
		switch {
		case first < 0 || count < 0 || block < 0 || distance < 0:
			return Regions{}, fmt.Errorf("%d blocks of %d elements, %d apart, from element %d on", count,
				block, stride, first)
		case count > 1 && distance < block:
			return Regions{}, fmt.Errorf("blocks of %d elements overlap that begin %d apart", block, distance)
		}
		d := dim{int64(count), int64(distance), int64(block)}
		at := int64(0)
		if stride < 0 {
			d.step, at = -d.step, int64(max(count-1, 0))*int64(block)
		}
		return nested(size, int64(first), int64(block), at, d)
	}
}

// Sub is a block of an n-dimensional array. Its elements are in the order in which the last index changes
// fastest; so are those of the array in the file, or in columns, where the first does.
func Sub(shape, start, extent []int, columns bool) Shape {
	return func(size int64) (Regions, error) {
		if len(start) != len(shape) || len(extent) != len(shape) {
			return Regions{}, fmt.Errorf("a block with %d first indices and %d lengths of an array of %d "+
				"dimensions", len(start), len(extent), len(shape))
		}
		dims := make([]dim, len(shape)) // by index
		step, stride, first := int64(1), int64(1), int64(0)
		var err error
		for d := len(shape) - 1; d >= 0; d-- {
			if shape[d] < 0 || start[d] < 0 || extent[d] < 0 || extent[d] > shape[d]-start[d] {
				return Regions{}, fmt.Errorf("%d elements from %d on, of %d, in dimension %d", extent[d],
					start[d], shape[d], d)
			}
			dims[d].count, dims[d].step = int64(extent[d]), step
			if step, err = product(step, int64(extent[d])); err != nil {
				return Regions{}, err
			}
		}
		order := make([]int, len(shape)) // of the dimensions in the file, outermost first
		for i := range order {
			order[i] = i
		}
		if columns {
			slices.Reverse(order)
		}
		for _, d := range slices.Backward(order) {
			dims[d].stride = stride
			first += int64(start[d]) * stride
			if stride, err = product(stride, int64(shape[d])); err != nil {
				return Regions{}, err
			}
		}
		if columns {
			slices.Reverse(dims)
		}
		return nested(size, first, 1, 0, dims...)
	}
}

// nested is blocks of contiguous elements in loops, outermost first, of elements of a size.
func nested(size, first, block, at int64, dims ...dim) (Regions, error) {
	r := Regions{run: block, at: at * size}
	var err error
	if r.run, err = product(block, size); err != nil {
		return Regions{}, err
	}
	if r.first, err = product(first, size); err != nil {
		return Regions{}, err
	}
	r.bytes, r.end = r.run, r.first+r.run
	for i := len(dims) - 1; i >= 0; i-- {
		d := dims[i]
		if r.bytes, err = product(r.bytes, d.count); err != nil {
			return Regions{}, err
		}
		if r.bytes == 0 {
			return Regions{}, nil
		}
		if d.count == 1 {
			continue
		}
		if d.stride, err = product(d.stride, size); err != nil {
			return Regions{}, err
		}
		d.step *= size
		reach, err := product(d.count-1, d.stride)
		if err != nil || reach > math.MaxInt64/2-r.end {
			return Regions{}, errTooFar
		}
		r.end += reach
		if len(r.dims) == 0 && d.stride == r.run && d.step == r.run {
			r.run *= d.count
			continue
		}
		if len(r.dims) == maxDims {
			return Regions{}, fmt.Errorf("an array of more than %d dimensions", maxDims)
		}
		r.dims = append(r.dims, d)
	}
	if r.bytes == 0 {
		return Regions{}, nil
	}
	slices.Reverse(r.dims)
	return r, nil
}

// Indexed is length[i] elements from element at[i] on, for each i in turn; without lengths, one each.
func Indexed(at, length []int) Shape {
	return func(size int64) (Regions, error) {
		if length != nil && len(length) != len(at) {
			return Regions{}, fmt.Errorf("%d places and %d lengths", len(at), len(length))
		}
		var r Regions
		for i, from := range at {
			n := 1
			if length != nil {
				n = length[i]
			}
			if from < 0 || n < 0 {
				return Regions{}, fmt.Errorf("%d elements from element %d on", n, from)
			}
			off, err := product(int64(from), size)
			if err != nil {
				return Regions{}, err
			}
			bytes, err := product(int64(n), size)
			if err != nil || bytes > math.MaxInt64/2-off || bytes > math.MaxInt64/2-r.bytes {
				return Regions{}, errTooFar
			}
			if bytes == 0 {
				continue
			}
			if last := len(r.list) - 1; last >= 0 && r.list[last].Off+r.list[last].Len == off {
				r.list[last].Len += bytes
			} else {
				r.list = append(r.list, Run{off, r.bytes, bytes})
			}
			r.bytes += bytes
		}
		if len(r.list) == 0 {
			return Regions{}, nil
		}
		byOffset := func(a, b Run) int { return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.At, b.At)) }
		if !slices.IsSortedFunc(r.list, byOffset) {
			slices.SortFunc(r.list, byOffset)
		}
		r.first = r.list[0].Off
		overlap := false
		for _, run := range r.list {
			overlap = overlap || run.Off < r.end
			r.end = max(r.end, run.Off+run.Len)
		}
		if overlap {
			end := int64(0)
			for _, run := range r.list {
				end = max(end, run.Off+run.Len)
				r.reaches = append(r.reaches, end)
			}
		}
		return r, nil
	}
}

// Move moves all offsets up.
func (r *Regions) Move(by int64) error {
	if by < 0 {
		return fmt.Errorf("an offset of %d bytes", by)
	}
	if by > math.MaxInt64/2-r.end {
		return errTooFar
	}
	r.first, r.end = r.first+by, r.end+by
	if r.bytes == 0 {
		r.first, r.end = 0, 0
	}
	for i := range r.list {
		r.list[i].Off += by
	}
	for i := range r.reaches {
		r.reaches[i] += by
	}
	return nil
}

// Bytes is how many there are.
func (r *Regions) Bytes() int64 { return r.bytes }

// Hull returns the offsets of the first byte and of what follows the last one.
func (r *Regions) Hull() (lo, hi int64) { return r.first, r.end }

// Twice returns an offset that is in the regions twice.
func (r *Regions) Twice() (off int64, twice bool) {
	for i := 1; r.reaches != nil && i < len(r.list); i++ {
		if r.list[i].Off < r.reaches[i-1] {
			return r.list[i].Off, true
		}
	}
	return 0, false
}

// A Strip is Count runs of one length, of which the offsets are Stride apart and the positions Step.
type Strip struct {
	Run                 // the first
	Count, Stride, Step int64
}

// Series are the ranges of the file in the strip.
func (s *Strip) Series() Series { return Series{s.Off, s.Len, s.Stride, int(s.Count)} }

// Runs yields the parts of the regions from the offset lo up to hi, by ascending offset.
func (r *Regions) Runs(lo, hi int64, yield func(Run) bool) {
	r.Strips(lo, hi, func(s Strip) bool {
		for range s.Count {
			if !yield(s.Run) {
				return false
			}
			s.Off, s.At = s.Off+s.Stride, s.At+s.Step
		}
		return true
	})
}

// Strips yields what Runs does, with runs of equal distances together. The first run and the last one may be
// parts of runs; they are strips of their own then.
func (r *Regions) Strips(lo, hi int64, yield func(Strip) bool) {
	if r.bytes == 0 || lo >= r.end || hi <= r.first {
		return
	}
	if r.list != nil {
		r.listed(lo, hi, yield)
		return
	}
	var turn [maxDims]int64
	off, at, rest := r.first, r.at, max(lo-r.first, 0)
	for i := range r.dims {
		d := &r.dims[i]
		n := min(rest/d.stride, d.count-1)
		turn[i], off, at, rest = n, off+n*d.stride, at+n*d.step, rest-n*d.stride
	}
	inner := len(r.dims) - 1
	for off < hi {
		from, to := max(off, lo), min(off+r.run, hi)
		s := Strip{Run{from, at + from - off, to - from}, 1, 0, 0}
		if inner >= 0 && s.Len == r.run {
			d := &r.dims[inner]
			s.Count, s.Stride, s.Step = min(d.count-turn[inner], (hi-to)/d.stride+1), d.stride, d.step
			off, at, turn[inner] = off+(s.Count-1)*d.stride, at+(s.Count-1)*d.step, turn[inner]+s.Count-1
		}
		if from < to && !yield(s) {
			return
		}
		i := inner
		for ; i >= 0; i-- {
			d := &r.dims[i]
			off, at = off+d.stride, at+d.step
			if turn[i]++; turn[i] < d.count {
				break
			}
			off, at, turn[i] = off-d.count*d.stride, at-d.count*d.step, 0
		}
		if i < 0 {
			return
		}
	}
}

func (r *Regions) listed(lo, hi int64, yield func(Strip) bool) {
	// The first run that ends after lo, or of overlapping ones the first that reaches beyond it.
	i, _ := slices.BinarySearchFunc(r.list, lo, func(run Run, lo int64) int {
		if run.Off+run.Len <= lo {
			return -1
		}
		return 1
	})
	if r.reaches != nil {
		i, _ = slices.BinarySearch(r.reaches, lo+1)
	}
	for _, run := range r.list[i:] {
		if run.Off >= hi {
			return
		}
		from, to := max(run.Off, lo), min(run.Off+run.Len, hi)
		if from < to && !yield(Strip{Run{from, run.At + from - run.Off, to - from}, 1, 0, 0}) {
			return
		}
	}
}

// Next returns the first offset of the regions that is not below off.
func (r *Regions) Next(off int64) (next int64, ok bool) {
	r.Strips(off, math.MaxInt64, func(s Strip) bool {
		next, ok = s.Off, true
		return false
	})
	return next, ok
}

// Before returns how many bytes of the sequence come before the first that is not below the offset end.
func (r *Regions) Before(end int64) int64 {
	if end >= r.end {
		return r.bytes
	}
	before := r.bytes
	r.Strips(end, math.MaxInt64, func(s Strip) bool {
		before = min(before, s.At, s.At+(s.Count-1)*s.Step)
		return true
	})
	return before
}
