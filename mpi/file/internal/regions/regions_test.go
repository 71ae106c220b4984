package regions

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// cases is how many random shapes are compared with plain lists of indices.
const cases = 10_000

// random returns a shape and, as a plain list, the elements of the file that it selects, in order.
func random(r *rand.Rand) (Shape, []int) {
	var list []int
	first := r.IntN(20)
	switch r.IntN(5) {
	case 0:
		count := r.IntN(30)
		for i := range count {
			list = append(list, first+i)
		}
		return Range(first, count), list
	case 1:
		count, block := r.IntN(6), r.IntN(5)
		stride := block + r.IntN(6)
		down := r.IntN(2) == 0
		for i := range count {
			k := i
			if down {
				k = count - 1 - i
			}
			for j := range block {
				list = append(list, first+k*stride+j)
			}
		}
		if down {
			stride = -stride
		}
		return Strided(first, count, block, stride), list
	case 2, 3:
		columns := r.IntN(2) == 0
		n := r.IntN(5)
		shape, start, extent := make([]int, n), make([]int, n), make([]int, n)
		for d := range n {
			shape[d] = 1 + r.IntN(5)
			start[d] = r.IntN(shape[d] + 1)
			extent[d] = r.IntN(shape[d] - start[d] + 1)
			if r.IntN(3) == 0 {
				start[d], extent[d] = 0, shape[d]
			}
		}
		index := make([]int, n)
		var fill func(d int)
		fill = func(d int) {
			if d < n {
				for i := range extent[d] {
					index[d] = start[d] + i
					fill(d + 1)
				}
				return
			}
			at := 0
			for i := range n {
				k := i
				if columns {
					k = n - 1 - i
				}
				at = at*shape[k] + index[k]
			}
			list = append(list, at)
		}
		fill(0)
		return Sub(shape, start, extent, columns), list
	default:
		n := r.IntN(12)
		at, length := make([]int, n), make([]int, n)
		place := 0
		inOrder := r.IntN(2) == 0
		for i := range n {
			length[i] = r.IntN(4)
			if at[i] = r.IntN(60); inOrder {
				at[i] = place + r.IntN(4)
				place = at[i] + length[i]
			}
		}
		if r.IntN(3) == 0 {
			return Indexed(at, nil), at
		}
		for i, from := range at {
			for j := range length[i] {
				list = append(list, from+j)
			}
		}
		return Indexed(at, length), list
	}
}

// TestRegionsAgainstPlainLists compares 10,000 random shapes with lists of all their bytes: in windows, as
// ranges that are sent, and as what is before an end of the file.
func TestRegionsAgainstPlainLists(t *testing.T) {
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		shape, list := random(r)
		size, move := int64(1+r.IntN(12)), int64(r.IntN(70))
		g, err := shape(size)
		require.NoError(t, err, seed)
		require.NoError(t, g.Move(move))
		var want []Run // of one byte each
		for i, e := range list {
			for b := range size {
				want = append(want, Run{move + int64(e)*size + b, int64(i)*size + b, 1})
			}
		}
		require.Equal(t, int64(len(want)), g.Bytes(), seed)
		lo, hi := g.Hull()
		sorted := slices.Clone(want)
		slices.SortFunc(sorted, func(a, b Run) int { return int(a.Off - b.Off) })
		twice := false
		for i := range sorted {
			twice = twice || i > 0 && sorted[i].Off == sorted[i-1].Off
		}
		_, isTwice := g.Twice()
		require.Equal(t, twice, isTwice, seed)
		if len(sorted) == 0 {
			require.Zero(t, lo)
			require.Zero(t, hi)
			continue
		}
		require.Equal(t, sorted[0].Off, lo, seed)
		require.Equal(t, sorted[len(sorted)-1].Off+1, hi, seed)

		// Windows of all sizes, from before the first byte to beyond the last.
		var got []Run
		window := int64(1 + r.IntN(40))
		for from := int64(0); from < hi+2*window; from += window {
			last := int64(-1)
			var e Encoder
			e.Reset(nil, from)
			var ranges []int64
			g.Runs(from, from+window, func(run Run) bool {
				if run.Off < last {
					t.Fatal("runs do not ascend: ", seed)
				}
				last = run.Off
				for b := range run.Len {
					got = append(got, Run{run.Off + b, run.At + b, 1})
				}
				if !twice {
					e.Add(run.Off, run.Len)
					for b := range run.Len {
						ranges = append(ranges, run.Off+b)
					}
				}
				return true
			})
			encoded, n := e.List()
			if !twice {
				var strips Encoder
				strips.Reset(nil, from)
				g.Strips(from, from+window, func(s Strip) bool {
					strips.AddSeries(s.Series())
					return true
				})
				if list, m := strips.List(); m != n || !slices.Equal(list, encoded) {
					t.Fatal(seed, list, encoded, m, n)
				}
			}
			var decoded []int64
			err := Ranges(encoded, from, from+window, func(s Series) bool {
				for i := range s.Count {
					for b := range s.N {
						decoded = append(decoded, s.Off+int64(i)*s.Stride+b)
					}
				}
				return true
			})
			if err != nil || !slices.Equal(ranges, decoded) || n != int64(len(ranges)) ||
				int64(len(encoded)) > MaxList(window) {
				t.Fatal(seed, err, ranges, decoded, n)
			}
		}
		slices.SortFunc(got, func(a, b Run) int { return int(a.At - b.At) })
		if !slices.Equal(want, got) {
			t.Fatal(seed, want, got)
		}

		end := int64(r.IntN(int(hi) + 10))
		before := slices.IndexFunc(want, func(run Run) bool { return run.Off >= end })
		if before < 0 {
			before = len(want)
		}
		require.Equal(t, int64(before), g.Before(end), seed)
		next, ok := g.Next(end)
		i := slices.IndexFunc(sorted, func(run Run) bool { return run.Off >= end })
		require.Equal(t, i >= 0, ok, seed)
		if ok {
			require.Equal(t, sorted[i].Off, next, seed)
		}
	}
}

func TestCoverageAgainstAPlainSet(t *testing.T) {
	var c Coverage
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		n := 1 + r.IntN(400)
		c.Reset(n)
		set := make([]bool, n)
		for range r.IntN(12) {
			lo := r.IntN(n)
			hi := lo + r.IntN(min(n-lo, 150)+1)
			want := -1
			for i := lo; i < hi; i++ {
				if set[i] && want < 0 {
					want = i
				}
				set[i] = true
			}
			if n := hi - lo; n > 0 && r.IntN(2) == 0 {
				twice := c.AddSeries(1000, Series{int64(1000 + lo), int64(n), int64(n + 7), 1})
				require.Equal(t, int64(want), max(twice-1000, -1), seed)
				continue
			}
			require.Equal(t, want, c.Add(lo, hi), seed)
		}
		gap := 1 + r.IntN(20)
		var want [][2]int
		for i := 0; i < n; i++ {
			if !set[i] {
				continue
			}
			if last := len(want) - 1; last >= 0 && i-want[last][1] < gap {
				want[last][1] = i + 1
			} else {
				want = append(want, [2]int{i, i + 1})
			}
		}
		var got [][2]int
		c.Ranges(gap, func(lo, hi int) bool { got = append(got, [2]int{lo, hi}); return true })
		require.Equal(t, want, got, seed)
	}
}

// Domains are disjoint, in blocks of their own, and cover all that any rank has; all windows of a rank
// together are its regions.
func TestPlans(t *testing.T) {
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 3))
		block := int64(1) << r.IntN(5)
		ranks := make([]Extent, 1+r.IntN(6))
		regions := make([]Regions, len(ranks))
		scale := int64(1)
		if r.IntN(2) == 0 {
			scale = ownBytes
		}
		at := 0
		for i := range ranks {
			shape, list := random(r)
			if r.IntN(2) == 0 {
				n := r.IntN(3)
				shape = Range(at, n)
				at += n
			}
			_ = list
			var err error
			regions[i], err = shape(scale)
			require.NoError(t, err)
			lo, hi := regions[i].Hull()
			ranks[i] = Extent{lo, hi, regions[i].Bytes()}
		}
		aggregators := []int{0}
		for i := 1; i < len(ranks); i++ {
			if r.IntN(2) == 0 {
				aggregators = append(aggregators, i)
			}
		}
		window := block * (1 + scale/8 + int64(r.IntN(int(2*scale))))
		p := NewPlan(ranks, aggregators, block, window, 4*window)
		owners := map[int]bool{}
		for i, d := range p.Domains {
			require.Less(t, d.Lo, d.Hi)
			require.Zero(t, d.Lo%block)
			require.False(t, owners[d.Owner])
			owners[d.Owner] = true
			if i > 0 {
				require.LessOrEqual(t, p.Domains[i-1].Hi, d.Lo)
			}
		}
		for i := range regions {
			found := int64(0)
			for _, d := range p.Domains {
				for w := NewWindows(&regions[i], d, p.Window); w.Next() != None; w.Advance() {
					lo, hi := d.Bounds(w.Next(), p.Window)
					n := found
					regions[i].Runs(lo, hi, func(run Run) bool { found += run.Len; return true })
					if found == n {
						t.Fatal("a window without bytes: ", seed)
					}
				}
			}
			require.Equal(t, regions[i].Bytes(), found, seed)
		}
	}
}

func TestShapesThatAreNone(t *testing.T) {
	for text, shape := range map[string]Shape{
		"1 blocks of -3 elements":   Range(0, -3),
		"from element -1 on":        Range(-1, 2),
		"blocks of 4 elements ove":  Strided(0, 2, 4, 3),
		"2 elements from 3 on, of":  Sub([]int{4, 4}, []int{0, 3}, []int{1, 2}, false),
		"1 first indices and 1":     Sub([]int{4, 4}, []int{0}, []int{1}, true),
		"1 places and 2 lengths":    Indexed([]int{1}, []int{1, 2}),
		"1 elements from element -": Indexed([]int{-1}, nil),
		errTooFar.Error():           Range(math.MaxInt64/2, 1),
	} {
		_, err := shape(8)
		require.ErrorContains(t, err, text)
	}
	g, err := Range(5, 1)(8)
	require.NoError(t, err)
	require.Error(t, g.Move(-1))
	require.Error(t, g.Move(math.MaxInt64-3))
}

func FuzzRanges(f *testing.F) {
	f.Add([]byte{1, 2, 0})
	f.Add([]byte{0, 1, 255, 255, 255, 255, 255, 255, 255, 127})
	f.Add([]byte{3, 4, 2, 1, 1, 0})
	f.Fuzz(func(t *testing.T, list []byte) {
		end, bytes := int64(100), int64(0)
		Ranges(list, 100, 1000, func(s Series) bool {
			for i := range s.Count {
				off := s.Off + int64(i)*s.Stride
				if off < end || s.N <= 0 || off+s.N > 1000 {
					t.Fatalf("%d bytes at %d", s.N, off)
				}
				end, bytes = off+s.N, bytes+s.N
			}
			return true
		})
		if bytes > 900 {
			t.Fatal(bytes)
		}
	})
}
