package main

import (
	"errors"
	"slices"
	"sort"

	"github.com/weft-mpi/weft/mpi"
)

// matrix is this rank's rows of the matrix, ready for products with vectors that all ranks have parts of.
type matrix struct {
	inner csr // columns that are this rank's rows, counted from its first
	outer csr // columns of other ranks, as indices into came
	graph *mpi.Graph
	fetch *mpi.Persistent
	sent  []int     // the rows that other ranks need, in the order of the neighbors
	out   []float64 // their numbers
	came  []float64 // the fetched values
}

// newMatrix finds out what the ranks need of each other. a has this rank's rows, with the columns of the
// whole matrix. All ranks of the world call it.
func newMatrix(world *mpi.Comm, r rows, a csr) (*matrix, error) {
	needed := r.foreign(world.Rank(), a.columns)
	needs := make([]int, world.Size()) // how many of each rank's numbers
	for rank := range needs {
		at, _ := slices.BinarySearch(needed, r.starts[rank])
		end, _ := slices.BinarySearch(needed, r.starts[rank+1])
		needs[rank] = end - at
	}
	// Each rank tells every other how many of its numbers it needs, and then which.
	gives := make([]int, world.Size())
	if err := mpi.Alltoall(world, needs, gives); err != nil {
		return nil, err
	}
	m := &matrix{came: make([]float64, len(needed))}
	total := 0
	for _, n := range gives {
		total += n
	}
	m.sent, m.out = make([]int, total), make([]float64, total)
	if err := mpi.Alltoallv(world, needed, needs, nil, m.sent, gives, nil); err != nil {
		return nil, err
	}
	for i := range m.sent {
		m.sent[i] -= r.starts[world.Rank()]
	}
	m.inner, m.outer = a.separate(r.starts[world.Rank()], r.count(world.Rank()), needed)

	sources, receives := nonzero(needs)
	destinations, sends := nonzero(gives)
	var err error
	if m.graph, err = world.Graph(sources, destinations, false); err != nil {
		return nil, err
	}
	m.fetch, err = mpi.NeighborAlltoallvInit(m.graph, m.out, sends, nil, m.came, receives, nil)
	return m, err
}

// foreign are the columns that are not this rank's rows, each once and in ascending order, and so in the
// order of the ranks.
func (r rows) foreign(rank int, columns []int) []int {
	var foreign []int
	for _, column := range columns {
		if column < r.starts[rank] || column >= r.starts[rank+1] {
			foreign = append(foreign, column)
		}
	}
	slices.Sort(foreign)
	return slices.Compact(foreign)
}

// separate divides the columns into those from first on, of which there are count, and those that are needed
// of other ranks.
func (a csr) separate(first, count int, needed []int) (inner, outer csr) {
	inner.starts, outer.starts = make([]int, 1, a.rows()+1), make([]int, 1, a.rows()+1)
	for row := range a.rows() {
		for i := a.starts[row]; i < a.starts[row+1]; i++ {
			part, column := &inner, a.columns[i]-first
			if column < 0 || column >= count {
				part, column = &outer, sort.SearchInts(needed, a.columns[i])
			}
			part.columns, part.values = append(part.columns, column), append(part.values, a.values[i])
		}
		inner.starts = append(inner.starts, len(inner.columns))
		outer.starts = append(outer.starts, len(outer.columns))
	}
	return inner, outer
}

// nonzero are the ranks whose count is not 0, and their counts.
func nonzero(counts []int) (ranks, of []int) {
	for rank, n := range counts {
		if n > 0 {
			ranks, of = append(ranks, rank), append(of, n)
		}
	}
	return ranks, of
}

// times sets y to this rank's part of the product with the vector of which x is this rank's part.
func (m *matrix) times(x, y []float64) error {
	for i, row := range m.sent {
		m.out[i] = x[row]
	}
	request, err := m.fetch.Start()
	if err != nil {
		return err
	}
	clear(y)
	m.inner.addTimes(x, y) // while the other numbers come
	if _, err := request.Wait(); err != nil {
		return err
	}
	m.outer.addTimes(m.came, y)
	return nil
}

// free releases the resources of newMatrix. All ranks call it.
func (m *matrix) free() error { return errors.Join(m.fetch.Free(), m.graph.Comm().Free()) }
