package tracefile

import (
	"cmp"
	"slices"

	"github.com/weft-mpi/weft/internal/trace"
)

// clock is a clock that ranks read, usually those of one host. Its readings are converted to rank 0's clock.
type clock struct {
	points []trace.Offset // by At; offsets in between are interpolated
	rough  bool           // only the times of day were compared
	late   correction     // shown by messages
}

// clocksOf returns the clock of each rank, with its offset from rank 0's.
func clocksOf(ranks []*trace.Rank) (of []*clock) {
	known := map[uint64]*clock{}
	for _, r := range ranks {
		c := known[r.Clock]
		if c == nil || r.Clock == 0 {
			c = &clock{}
			known[r.Clock] = c
		}
		c.points = append(c.points, r.Offsets...)
		of = append(of, c)
	}
	// A clock that was not compared with rank 0's is aligned by the time of day, relative to one that was.
	reference := max(0, slices.IndexFunc(ranks, func(r *trace.Rank) bool { return r.Clock == r.Base }))
	base := of[reference]
	base.points = nil
	for i, c := range of {
		if c == base {
			continue
		}
		if r, b := ranks[i], ranks[reference]; len(c.points) == 0 {
			c.rough = true
			c.points = []trace.Offset{{At: r.Epoch, Ahead: (r.Wall - r.Epoch) - (b.Wall - b.Epoch)}}
		}
		slices.SortFunc(c.points, func(a, b trace.Offset) int { return cmp.Compare(a.At, b.At) })
	}
	return of
}

// convert returns what rank 0's clock shows when this one shows t.
func (c *clock) convert(t int64) int64 {
	t = c.compared(t)
	return t + c.late.at(t)
}

// compared is convert by comparisons of the clocks alone.
func (c *clock) compared(t int64) int64 {
	n := len(c.points)
	if n == 0 {
		return t
	}
	first, last := c.points[0], c.points[n-1]
	switch {
	case t <= first.At || last.At == first.At:
		return t + first.Ahead
	case t >= last.At:
		return t + last.Ahead
	}
	i, _ := slices.BinarySearchFunc(c.points, t,
		func(o trace.Offset, t int64) int { return cmp.Compare(o.At, t) })
	a, b := c.points[i-1], c.points[i]
	return t + a.Ahead + int64(float64(b.Ahead-a.Ahead)*float64(t-a.At)/float64(b.At-a.At))
}

// correction is by how much a clock must be later, at equally spaced times. Corrections in between are
// interpolated. The zero correction is none.
type correction struct {
	begin, step int64
	by          []int64
}

func (k *correction) at(t int64) int64 {
	if len(k.by) == 0 {
		return 0
	}
	i := int((t - k.begin) / k.step)
	switch {
	case t < k.begin || i < 0: // the ranks' times may be wrong
		return k.by[0]
	case i >= len(k.by)-1:
		return k.by[len(k.by)-1]
	}
	part := float64(t-k.begin-int64(i)*k.step) / float64(k.step)
	return k.by[i] + int64(part*float64(k.by[i+1]-k.by[i]))
}
