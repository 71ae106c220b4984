package grid

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFill(t *testing.T) {
	for _, c := range []struct {
		n          int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}},
		{7, []int{0, 0}, []int{7, 1}},
		{6, []int{0, 3, 0}, []int{2, 3, 1}},
		{16, []int{0, 0}, []int{4, 4}},
		{24, []int{0, 0, 0}, []int{4, 3, 2}},
		{60, []int{0, 0, 0}, []int{5, 4, 3}},
		{1, []int{0, 0}, []int{1, 1}},
		{12, []int{3, 4}, []int{3, 4}},
		{1 << 20, []int{0, 0, 0, 0}, []int{32, 32, 32, 32}},
		{720720, []int{0, 0, 0}, []int{91, 90, 88}},
		{1 << 31, []int{0, 0, 0}, []int{2048, 1024, 1024}},
		{1 << 40, []int{0, 0}, []int{1 << 20, 1 << 20}},
		{1 << 40, []int{0, 0, 0}, []int{1 << 14, 1 << 13, 1 << 13}},
		{3 << 31, []int{0, 0, 0}, []int{2048, 2048, 1536}},
		{897612484786617600, []int{0, 0, 0, 0, 0, 0}, []int{1001, 999, 992, 986, 966, 950}}, // 103,680 divisors
	} {
		dims := slices.Clone(c.dims)
		require.NoError(t, Fill(c.n, dims))
		require.Equal(t, c.want, dims, "%d as %v", c.n, c.dims)
	}
	for _, c := range []struct {
		n    int
		dims []int
	}{{7, []int{0, 2}}, {0, []int{0}}, {6, []int{2, 2}}, {6, []int{-1, 0}}, {-6, []int{0}}, {2, nil},
		{math.MaxInt32 * math.MaxInt32, []int{0, 0}}, // two large primes
	} {
		require.Error(t, Fill(c.n, c.dims), "%d as %v", c.n, c.dims)
	}
}

// TestFill_AsEqualAsPossible compares with all ways to write a number as a product.
func TestFill_AsEqualAsPossible(t *testing.T) {
	for n := 1; n <= 128; n++ {
		for k := 1; k <= 5; k++ {
			least := n
			var try func(rest, k, first, last int)
			try = func(rest, k, first, last int) {
				if k == 0 && rest == 1 {
					least = min(least, first-last)
				}
				for f := 1; f <= last && k > 0; f++ {
					if rest%f == 0 {
						try(rest/f, k-1, max(first, f), f)
					}
				}
			}
			try(n, k, 0, n)
			dims := make([]int, k)
			require.NoError(t, Fill(n, dims))
			require.Equal(t, n, Size(dims))
			require.True(t, slices.IsSortedFunc(dims, func(a, b int) int { return b - a }), "%v", dims)
			require.Equal(t, least, dims[0]-dims[k-1], "%d as %v", n, dims)
		}
	}
}

// crossing counts the pairs of neighbors of a grid that are on different hosts.
func crossing(dims, order, hosts []int) int {
	n := 0
	for place := range order {
		at := Coords(dims, place)
		for d := range dims {
			if at[d]+1 < dims[d] {
				at[d]++
				if hosts[order[place]] != hosts[order[Rank(dims, at)]] {
					n++
				}
				at[d]--
			}
		}
	}
	return n
}

// Neighbors of a grid come to one host, and every rank has one place.
func TestPlaceGrid(t *testing.T) {
	hosts := make([]int, 16) // four hosts of four ranks, taken in turn
	for i := range hosts {
		hosts[i] = i % 4
	}
	dims := []int{4, 4}
	order := Place(dims, hosts)
	require.Equal(t, 8, crossing(dims, order, hosts), "blocks of 2 × 2")
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		dims := []int{1 + random.IntN(4), 1 + random.IntN(4), 1 + random.IntN(3)}
		n := Size(dims)
		hosts := make([]int, n+random.IntN(3))
		plain := make([]int, len(hosts))
		for i := range hosts {
			hosts[i], plain[i] = random.IntN(3), i
		}
		order := Place(dims, hosts)
		require.Len(t, order, n)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(order))), n, "each rank once")
	}
}

// A ring whose vertices are numbered at random is cut into one arc for each host.
func TestPlaceGraph(t *testing.T) {
	const n = 12
	ring := rand.New(rand.NewPCG(3, 4)).Perm(n)
	neighbors := make([][]int, n)
	for i, v := range ring {
		neighbors[v] = []int{ring[(i+1)%n], ring[(i+n-1)%n]}
	}
	hosts := make([]int, n)
	for i := range hosts {
		hosts[i] = i % 2
	}
	order := PlaceGraph(neighbors, hosts)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(order))), n, "each rank once")
	crossing := 0
	for v := range neighbors {
		for _, w := range neighbors[v] {
			if hosts[order[v]] != hosts[order[w]] {
				crossing++
			}
		}
	}
	require.Equal(t, 4, crossing, "two cuts, seen from both sides")
}
