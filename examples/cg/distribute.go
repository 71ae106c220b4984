package main

import "github.com/weft-mpi/weft/mpi"

// rows has the division of the rows: a rank has those from starts[rank] up to starts[rank+1].
type rows struct{ starts []int }

// newRows cuts a number of rows into parts that differ by one at most.
func newRows(count, ranks int) rows {
	r := rows{make([]int, ranks+1)}
	for rank := range ranks {
		r.starts[rank+1] = r.starts[rank] + count/ranks
		if rank < count%ranks {
			r.starts[rank+1]++
		}
	}
	return r
}

func (r rows) count(rank int) int { return r.starts[rank+1] - r.starts[rank] }

// counts returns the numbers of rows of all ranks.
func (r rows) counts() []int {
	counts := make([]int, len(r.starts)-1)
	for rank := range counts {
		counts[rank] = r.count(rank)
	}
	return counts
}

// distribute gives each rank its rows of the system that rank 0 has. Columns keep their numbers.
func distribute(world *mpi.Comm, r rows, s system) (csr, []float64, error) {
	// How many numbers a row has says where the numbers of each rank begin.
	mine := make([]int, r.count(world.Rank()))
	var lengths, numbers []int // of each row, and of each rank; at rank 0 alone
	if world.Rank() == 0 {
		lengths, numbers = make([]int, s.a.rows()), make([]int, world.Size())
		for row := range lengths {
			lengths[row] = s.a.starts[row+1] - s.a.starts[row]
		}
		for rank := range numbers {
			numbers[rank] = s.a.starts[r.starts[rank+1]] - s.a.starts[r.starts[rank]]
		}
	}
	// Without displacements the blocks follow one another.
	if err := mpi.Scatterv(world, lengths, r.counts(), nil, mine, 0); err != nil {
		return csr{}, nil, err
	}
	a := csr{starts: make([]int, len(mine)+1)}
	for row, n := range mine {
		a.starts[row+1] = a.starts[row] + n
	}
	a.columns, a.values = make([]int, a.starts[len(mine)]), make([]float64, a.starts[len(mine)])
	if err := mpi.Scatterv(world, s.a.columns, numbers, nil, a.columns, 0); err != nil {
		return csr{}, nil, err
	}
	if err := mpi.Scatterv(world, s.a.values, numbers, nil, a.values, 0); err != nil {
		return csr{}, nil, err
	}
	b := make([]float64, len(mine))
	return a, b, mpi.Scatterv(world, s.b, r.counts(), nil, b, 0)
}

// collect puts the ranks' parts of a vector together at rank 0.
func collect(world *mpi.Comm, r rows, mine []float64) ([]float64, error) {
	var all []float64
	if world.Rank() == 0 {
		all = make([]float64, r.starts[world.Size()])
	}
	return all, mpi.Gatherv(world, mine, all, r.counts(), nil, 0)
}
