package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weft-mpi/weft/mpi"
)

// sparse compares Exchange with the equivalent dense calls: Alltoallv if each rank knows what it will
// receive, otherwise with a preceding Alltoall of the lengths.
var sparse = &tableSpec{
	columns: tableOf("us", sizeColumn,
		column{name: "exchange", heading: "Exchange(us)", unit: "us", width: 20, of: valueOf},
		column{name: "alltoallv", heading: "Alltoallv(us)", unit: "us", width: 20,
			of: func(c *measurement) float64 { return c.baseline }},
		column{name: "lengths", heading: "Lengths first(us)", unit: "us", width: 20,
			of: func(c *measurement) float64 { return c.compute }},
		column{name: "ratio", heading: "Lengths/Exchange", width: 20,
			of: func(c *measurement) float64 { return c.compute / c.value }}),
	datatype: "MPI_CHAR", element: 1, min: 8, max: 64 << 10, axes: latencyAxes, tails: true,
	counts: counts{1000, 100, 100, 10},
}

// usualDegree is the default number of ranks that each rank sends to, if there are as many.
const usualDegree = 4

// degree returns the number of ranks that each rank sends to, which is also the number of those that send to
// it.
func degree(o Options, _, ranks int) int {
	if o.Degree == 0 {
		return min(usualDegree, ranks-1)
	}
	return o.Degree
}

// exchange measures a sparse exchange in three ways. Ranks at random distances, the same for all ranks, send
// to each other.
func exchange(s *session, n int) (measurement, error) {
	c, me, size := s.world, s.world.Rank(), s.world.Size()
	var dests, sources []int // ascending, like the blocks of Alltoallv
	for _, d := range rand.New(rand.NewPCG(1, uint64(size))).Perm(size - 1)[:degree(s.Options, me, size)] {
		dests, sources = append(dests, (me+1+d)%size), append(sources, (me-1-d+size)%size)
	}
	slices.Sort(dests)
	slices.Sort(sources)
	out, in := s.send[:n*len(dests)], s.recv[:n*len(sources)]
	sends, receives := make([]int, size), make([]int, size)
	counts, lengths, found := make([]int, len(dests)), make([]int, size), make([]int, size)
	for i, rank := range dests {
		counts[i], sends[rank], lengths[rank] = n, n, n
		receives[sources[i]] = n
	}
	fill := func(i int) {
		for k, rank := range dests {
			s.pattern(out[k*n:][:n], me, i*size+rank)
		}
	}
	compare := func(i int) {
		for k, rank := range sources {
			s.compareMessage(in[k*n:][:n], rank, i*size+me)
		}
	}
	take := func(src int, data []byte) {
		if k, ok := slices.BinarySearch(sources, src); ok {
			copy(in[k*n:][:n], data)
		}
	}
	result, err := s.each(n, fill, func() error {
		return mpi.ExchangeFunc(c, dests, counts, out, take)
	}, compare)
	if err != nil {
		return result, err
	}
	known, err := s.each(n, fill, func() error {
		return mpi.Alltoallv(c, out, sends, nil, in, receives, nil)
	}, compare)
	if err != nil {
		return result, err
	}
	unknown, err := s.each(n, fill, func() error {
		if err := mpi.Alltoall(c, lengths, found); err != nil {
			return err
		}
		return mpi.Alltoallv(c, out, sends, nil, in, found, nil)
	}, compare)
	result.baseline, result.compute = known.value, unknown.value
	return result, err
}

// sparseForms are the benchmarks of exchanges in which no rank knows who sends to it.
var sparseForms = []*Benchmark{
	{Name: "exchange", Short: "time of a sparse exchange, beside Alltoallv", MinRanks: 2, Start: 4,
		title: "Sparse Exchange Latency", spec: sparse, measureSize: exchange, Sparse: true,
		recvCount: degree, sendCount: degree,
		preamble: func(s *session) string {
			n := degree(s.Options, s.world.Rank(), s.world.Size())
			return fmt.Sprint("# Destinations of each rank: ", n)
		}},
}
