package main

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// entry is a number of a sparse matrix, and its place.
type entry struct {
	row, column int
	value       float64
}

// coordinates are the numbers of a square matrix in any order.
type coordinates struct {
	rows    int
	entries []entry
}

// csr is a sparse matrix, or some rows of one, in compressed rows: those of row i are the numbers from
// starts[i] to before starts[i+1], in ascending order of the columns.
type csr struct {
	starts  []int
	columns []int
	values  []float64
}

func (a csr) rows() int { return len(a.starts) - 1 }

// compress sorts the numbers. Those of one place are added up.
func (c coordinates) compress() csr {
	entries := slices.Clone(c.entries)
	slices.SortStableFunc(entries, func(e, f entry) int {
		return cmp.Or(cmp.Compare(e.row, f.row), cmp.Compare(e.column, f.column))
	})
	a := csr{starts: make([]int, c.rows+1)}
	for i, e := range entries {
		if i > 0 && e.row == entries[i-1].row && e.column == entries[i-1].column {
			a.values[len(a.values)-1] += e.value
			continue
		}
		a.columns, a.values = append(a.columns, e.column), append(a.values, e.value)
		a.starts[e.row+1]++
	}
	for row := range c.rows {
		a.starts[row+1] += a.starts[row]
	}
	return a
}

// at is the number of a place.
func (a csr) at(row, column int) float64 {
	begin, end := a.starts[row], a.starts[row+1]
	if i, found := sort.Find(end-begin, func(i int) int { return column - a.columns[begin+i] }); found {
		return a.values[begin+i]
	}
	return 0
}

// suits tells why conjugate gradients cannot solve equations with the matrix, as far as that is easily seen:
// it must be symmetric, and its diagonal positive.
func (a csr) suits() error {
	for row := range a.rows() {
		if d := a.at(row, row); !(d > 0) {
			return fmt.Errorf("not positive definite: the number in row %d of the diagonal is %v", row+1, d)
		}
		for i := a.starts[row]; i < a.starts[row+1]; i++ {
			if column := a.columns[i]; a.values[i] != a.at(column, row) {
				return fmt.Errorf("not symmetric: %v in row %d, column %d, and %v in row %d, column %d",
					a.values[i], row+1, column+1, a.at(column, row), column+1, row+1)
			}
		}
	}
	return nil
}

// times is the product with a vector that has a number for each column.
func (a csr) times(x []float64) []float64 {
	y := make([]float64, a.rows())
	a.addTimes(x, y)
	return y
}

// addTimes adds the product with x to y.
func (a csr) addTimes(x, y []float64) {
	for row := range y {
		sum := 0.0
		for i := a.starts[row]; i < a.starts[row+1]; i++ {
			sum += a.values[i] * x[a.columns[i]]
		}
		y[row] += sum
	}
}
