package regions

import (
	"encoding/binary"
	"errors"
)

// Encoder makes a list of disjoint ranges of a window short: each record has the distance from the end of the
// range before it, the length, and how many further ranges have the same two, as unsigned varints.
type Encoder struct {
	b       []byte
	end     int64 // of the last range
	gap, n  int64 // of the last range; n is 0 before the first
	more    int64 // ranges with the same gap and n as the last record
	growing bool  // the last range has no record yet, as the next one may extend it
	start   int64 // of the growing range
	before  int64 // the end of the range before it
	bytes   int64
}

// Reset begins a list of ranges in the window from an offset on. The list is appended to b.
func (e *Encoder) Reset(b []byte, lo int64) { *e = Encoder{b: b, end: lo, before: lo} }

// Add adds a range that begins at or after the end of the one before it. Adjacent ranges become one.
func (e *Encoder) Add(off, n int64) {
	e.bytes += n
	if e.growing && off == e.end {
		e.end += n
		return
	}
	e.flush()
	e.growing, e.start, e.end = true, off, off+n
}

// AddSeries adds ranges of n bytes that begin stride bytes apart, the first at off.
func (e *Encoder) AddSeries(s Series) {
	if s.Stride == s.N {
		e.Add(s.Off, s.N*int64(s.Count))
		return
	}
	for i := 0; i < s.Count; i++ {
		e.Add(s.Off+int64(i)*s.Stride, s.N)
		if same := s.Count - 3; i == 1 && same > 0 {
			// The ranges between the second and the last have the same record as the second.
			e.flush()
			i += same
			e.more += int64(same)
			e.end += int64(same) * s.Stride
			e.before = e.end
			e.bytes += int64(same) * s.N
		}
	}
}

func (e *Encoder) flush() {
	if !e.growing {
		return
	}
	gap, n := e.start-e.before, e.end-e.start
	e.before, e.growing = e.end, false
	if e.n > 0 && gap == e.gap && n == e.n {
		e.more++
		return
	}
	e.record()
	e.gap, e.n, e.more = gap, n, 0
}

func (e *Encoder) record() {
	if e.n > 0 {
		e.b = binary.AppendUvarint(e.b, uint64(e.gap))
		e.b = binary.AppendUvarint(e.b, uint64(e.n))
		e.b = binary.AppendUvarint(e.b, uint64(e.more))
	}
}

// List ends the list and returns it, and the number of bytes in its ranges.
func (e *Encoder) List() (list []byte, bytes int64) {
	e.flush()
	e.record()
	e.n = 0
	return e.b, e.bytes
}

// MaxList returns how long the list of a window of so many bytes can be. The shortest range with the gap
// before it has two bytes, and a record of at most 3 varints for them; longer varints stand for more bytes.
func MaxList(window int64) int64 { return 4*window + 3*binary.MaxVarintLen64 }

var errList = errors.New("a list of ranges that is not one")

// Series is ranges of n bytes each that begin stride bytes apart.
type Series struct {
	Off, N, Stride int64
	Count          int
}

// Ranges yields the ranges of a list for the window from lo to hi, of which each series is one record. It
// refuses, before it yields it, a series that is not in the window.
func Ranges(list []byte, lo, hi int64, yield func(s Series) bool) error {
	end := lo
	for len(list) > 0 {
		var record [3]int64
		for i := range record {
			v, n := binary.Uvarint(list)
			if n <= 0 || v > 1<<62 {
				return errList
			}
			record[i], list = int64(v), list[n:]
		}
		gap, n, more := record[0], record[1], record[2]
		if n == 0 || gap > hi-end || n > hi-end-gap || more > (hi-end)/(gap+n)-1 {
			return errList
		}
		s := Series{Off: end + gap, N: n, Stride: gap + n, Count: int(more) + 1}
		end += (gap + n) * (more + 1)
		if !yield(s) {
			return nil
		}
	}
	return nil
}

// Contiguous reports whether a list is one range.
func Contiguous(list []byte, lo, hi int64) (off, n int64, is bool) {
	series := 0
	err := Ranges(list, lo, hi, func(s Series) bool {
		off, n, is = s.Off, s.N, s.Count == 1
		series++
		return true
	})
	return off, n, is && series == 1 && err == nil
}
