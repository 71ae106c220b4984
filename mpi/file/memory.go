package file

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/internal/regions"
)

// elements is the memory of a rank's elements, whose type is forgotten.
type elements struct {
	size    int
	bytes   []byte   // of the elements, if they are contiguous and have the file's byte order; else nil
	numbers []number // whose byte order is changed
	mover   func() mover

	mu  sync.Mutex
	cut map[int]*cutElement // elements of which a part has been read
}

// mover copies whole elements of a View, by number, from and to a buffer of its own, aligned for them.
type mover interface {
	buffer(n int) []byte            // of n elements
	pack(at, length []int) []byte   // the elements length[i] from at[i] on
	unpack(at, length []int, n int) // the n elements of the buffer
}

type viewMover[T any] struct {
	view mpi.View[T]
	buf  []T
}

func (m *viewMover[T]) buffer(n int) []byte {
	if n > len(m.buf) {
		m.buf = make([]T, n)
	}
	return bytesOf(m.buf[:n])
}

func (m *viewMover[T]) pack(at, length []int) []byte {
	part, n := m.part(at, length)
	b := m.buffer(n)
	part.Pack(m.buf[:n])
	return b
}

func (m *viewMover[T]) unpack(at, length []int, n int) {
	part, _ := m.part(at, length)
	part.Unpack(m.buf[:n])
}

// part is elements of the view, and how many.
func (m *viewMover[T]) part(at, length []int) (mpi.View[T], int) {
	n := 0
	for _, l := range length {
		n += l
	}
	return m.view.Indexed(at, length), n
}

// bytesOf is the memory of a slice.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// copyBlocks copies count blocks of n bytes: the first from the index from to the index to, each of the
// others further by a step.
func copyBlocks(dst []byte, to, toStep int, src []byte, from, fromStep, n, count int) {
	for ; count > 0; count-- {
		copy(dst[to:to+n], src[from:from+n])
		to, from = to+toStep, from+fromStep
	}
}

// cutElement is an element that windows cut, as its bytes come.
type cutElement struct {
	bytes []byte
	got   int
}

// A copier copies between the rank's elements and buffers, for one goroutine.
type copier struct {
	*elements
	mover      mover
	at, length []int // of whole elements, for mover
	packed     []byte
}

func newCopier(e *elements) *copier {
	c := &copier{elements: e}
	if e.bytes == nil && e.size > 0 {
		c.mover = e.mover()
	}
	return c
}

// add adds elements to what mover copies.
func (c *copier) add(first, end int) {
	if last := len(c.at) - 1; last >= 0 && c.at[last]+c.length[last] == first {
		c.length[last] += end - first
		return
	}
	c.at, c.length = append(c.at, first), append(c.length, end-first)
}

// addStrip adds the elements of a strip, whose first and last may be cut.
func (c *copier) addStrip(s regions.Strip) {
	size := int64(c.size)
	if s.Step == s.Len {
		s.Len, s.Count = s.Len*s.Count, 1
	}
	for at := s.At; s.Count > 0; s.Count-- {
		c.add(int(at/size), int((at+s.Len+size-1)/size))
		at += s.Step
	}
}

// gather returns the bytes of the regions from lo up to hi, by ascending offset. They are the rank's own
// memory or the copier's, until the next call. It appends their ranges to list.
func (c *copier) gather(r *regions.Regions, lo, hi int64, list []byte) (ranges, data []byte) {
	var e regions.Encoder
	e.Reset(list, lo)
	if c.bytes != nil {
		c.packed = c.packed[:0]
		r.Strips(lo, hi, func(s regions.Strip) bool {
			e.AddSeries(s.Series())
			if data == nil && s.Count == 1 {
				data = c.bytes[s.At:][:s.Len] // if it is all
				return true
			}
			if len(c.packed) == 0 {
				c.packed = append(c.packed, data...)
			}
			n, more := len(c.packed), int(s.Count*s.Len)
			c.packed = slices.Grow(c.packed, more)[:n+more]
			copyBlocks(c.packed, n, int(s.Len), c.bytes, int(s.At), int(s.Step), int(s.Len), int(s.Count))
			data = c.packed
			return true
		})
		ranges, _ = e.List()
		return ranges, data
	}
	// Only the first element and the last can be cut.
	size := int64(c.size)
	c.at, c.length = c.at[:0], c.length[:0]
	skip, drop := int64(-1), int64(0)
	r.Strips(lo, hi, func(s regions.Strip) bool {
		e.AddSeries(s.Series())
		if skip < 0 {
			skip = s.At % size
		}
		last := s.At + (s.Count-1)*s.Step + s.Len
		drop = (size - last%size) % size
		c.addStrip(s)
		return true
	})
	ranges, _ = e.List()
	if len(c.at) == 0 {
		return ranges, nil
	}
	data = c.mover.pack(c.at, c.length)
	swap(data, c.size, c.numbers)
	return ranges, data[skip : int64(len(data))-drop]
}

// request appends the ranges of the regions from lo up to hi to list. Regions that overlap are in one range.
func request(r *regions.Regions, lo, hi int64, list []byte) (ranges []byte, n int64) {
	var e regions.Encoder
	e.Reset(list, lo)
	end := lo
	r.Strips(lo, hi, func(s regions.Strip) bool {
		if s.Count > 1 {
			e.AddSeries(s.Series())
		} else if from, to := max(s.Off, end), s.Off+s.Len; from < to {
			e.Add(from, to-from)
			end = to
		}
		return true
	})
	return e.List()
}

// scatter copies data to the elements: the whole window, or packed what request asks for of it.
func (c *copier) scatter(r *regions.Regions, lo, hi int64, data []byte, packed bool) {
	// The range of data that has the offset from is at place there, and ends at the offset end.
	from, end, place := lo, lo, int64(0)
	c.at, c.length, c.packed = c.at[:0], c.length[:0], c.packed[:0]
	r.Strips(lo, hi, func(s regions.Strip) bool {
		at, step := s.Off-lo, s.Stride
		if packed {
			if s.Off > end {
				place += end - from
				from, end = s.Off, s.Off
			}
			at, step = place+s.Off-from, s.Len
			if s.Count > 1 { // the ranges do not overlap
				place, from = at+(s.Count-1)*s.Len, s.Off+(s.Count-1)*s.Stride
			}
			end = max(end, s.Off+(s.Count-1)*s.Stride+s.Len)
		}
		if c.bytes != nil {
			copyBlocks(c.bytes, int(s.At), int(s.Step), data, int(at), int(step), int(s.Len), int(s.Count))
			return true
		}
		for range s.Count {
			c.take(s.At, data[at:][:s.Len])
			s.At, at = s.At+s.Step, at+step
		}
		return true
	})
	c.unpack()
}

// take notes the bytes of a run, for unpack or as pieces of elements.
func (c *copier) take(at int64, b []byte) {
	size := int64(c.size)
	if skip := at % size; skip > 0 {
		n := min(size-skip, int64(len(b)))
		c.piece(at, b[:n])
		b, at = b[n:], at+n
	}
	if n := int64(len(b)) / size; n > 0 {
		c.add(int(at/size), int(at/size+n))
		c.packed = append(c.packed, b[:n*size]...)
		b, at = b[n*size:], at+n*size
	}
	if len(b) > 0 {
		c.piece(at, b)
	}
}

// unpack copies what is packed to its elements.
func (c *copier) unpack() {
	if len(c.at) == 0 {
		return
	}
	n := len(c.packed) / c.size
	b := c.mover.buffer(n)
	copy(b, c.packed)
	swap(b, c.size, c.numbers)
	c.mover.unpack(c.at, c.length, n)
}

// piece is a part of an element that windows cut.
func (c *copier) piece(at int64, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := int(at) / c.size
	e := c.cut[number]
	if e == nil {
		if c.cut == nil {
			c.cut = map[int]*cutElement{}
		}
		e = &cutElement{bytes: make([]byte, c.size)}
		c.cut[number] = e
	}
	copy(e.bytes[int(at)%c.size:], b)
	if e.got += len(b); e.got < c.size {
		return
	}
	delete(c.cut, number)
	one := c.elements.mover()
	whole := one.buffer(1)
	copy(whole, e.bytes)
	swap(whole, c.size, c.numbers)
	one.unpack([]int{number}, []int{1}, 1)
}
