package layout

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Twice returns an offset in memory that the layout contains twice, if there is one. Offsets can be negative.
func (l *Layout) Twice() (at int, twice bool) {
	if l.more == nil && max(l.stride, -l.stride) >= l.block { // most columns
		return 0, false
	}
	return l.twice()
}

func (l *Layout) twice() (int, bool) {
	if m := l.more; !l.Scattered() || m != nil && m.of == nil && m.list != nil && m.list.ascending {
		return 0, false
	}
	at, twice := l.twiceHere()
	of := l.of()
	if of == nil {
		return at, twice
	}
	if twice {
		at, _ = of.Span(at)
		return at, true
	}
	if _, twice := of.Twice(); !twice {
		return 0, false
	}
	// The layout that l selects from has bytes twice. Only offsets in memory show whether l selects both.
	var all []interval
	for position := 0; position < l.n; {
		from, n := l.Span(position)
		all = append(all, interval{from, from + n})
		position += n
	}
	return overlap(all)
}

type interval struct{ from, to int }

// overlap returns where two intervals overlap, if any do. It sorts them.
func overlap(all []interval) (at int, found bool) {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(all); i++ {
		if all[i].from < all[i-1].to {
			return all[i].from, true
		}
	}
	return 0, false
}

// twiceHere is Twice, but returns an offset in the layout from which l selects.
func (l *Layout) twiceHere() (int, bool) {
	if p := l.list(); p != nil {
		e, twice := p.twiceInList()
		return l.start + e*p.step, twice
	}
	// Without a list, elements can repeat only if a block is longer than its stride, or, after Of, if a
	// dimension lies inside the block of another.
	var room [maxDims]dim
	dims := l.appendDims(room[:0])
	for i, d := range dims {
		if max(d.stride, -d.stride) >= l.block {
			continue
		}
		if i == len(dims)-1 || d.stride == 0 {
			return l.start + max(d.stride, 0), true
		}
	}
	if l.sorted(dims) {
		return 0, false
	}
	var all []interval
	for position := 0; position < l.n; {
		from, n := l.spanHere(position)
		all = append(all, interval{from, from + n})
		position += n
	}
	return overlap(all)
}

// sorted reports whether the stride of each dimension is at least the extent of one of its parts.
func (l *Layout) sorted(dims []dim) bool {
	extent := l.block
	for i := len(dims) - 1; i >= 0; i-- {
		distance := max(dims[i].stride, -dims[i].stride)
		if distance < extent {
			return false
		}
		extent += (dims[i].count - 1) * distance
	}
	return true
}

// seen is a set of elements in a stretch of memory.
type seen [seenElements / 64]uint64

// seenElements makes the set 32 KiB. maxStretches bounds the passes over a list, one for each stretch.
const (
	seenElements = 1 << 18
	maxStretches = 16
)

var seenSets = sync.Pool{New: func() any { return new(seen) }}

// twiceInList returns an element that two ranges of a list share, if there is one. It makes one pass for each
// stretch of memory if these are few, and else sorts the ranges.
func (l *list) twiceInList() (int, bool) {
	if l.ascending {
		return 0, false
	}
	low, high := math.MaxInt, 0
	for i, from := range l.at {
		if n := l.lengthOf(i) / l.size; n > 0 {
			low, high = min(low, from), max(high, from+n)
		}
	}
	if high-low <= maxStretches*seenElements {
		return l.twiceInStretches(low, high)
	}
	all := make([]interval, 0, len(l.at))
	for i, from := range l.at {
		if n := l.lengthOf(i) / l.size; n > 0 {
			all = append(all, interval{from, from + n})
		}
	}
	return overlap(all)
}

func (l *list) twiceInStretches(low, high int) (int, bool) {
	set := seenSets.Get().(*seen)
	defer seenSets.Put(set)
	for first := low; first < high; first += seenElements {
		clear(set[:(min(high-first, seenElements)+63)/64])
		for i, from := range l.at {
			to := min(from+l.lengthOf(i)/l.size, first+seenElements)
			for e := max(from, first); e < to; e++ {
				word, bit := &set[(e-first)/64], uint64(1)<<((e-first)%64)
				if *word&bit != 0 {
					return e, true
				}
				*word |= bit
			}
		}
	}
	return 0, false
}
