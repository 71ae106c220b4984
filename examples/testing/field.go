// Package field is a vector of numbers that is spread over the ranks of a communicator, each of which has a
// piece. It is an example of parallel code with tests of its own, in a module of its own: see field_test.go.
package field

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// Field is this rank's piece of a vector.
type Field struct {
	world *mpi.Comm
	first int // index of piece[0] in the vector
	total int
	piece []float64
}

// New makes the piece of a vector of n numbers, which of gives. It is collective.
func New(world *mpi.Comm, n int, of func(i int) float64) (*Field, error) {
	if n < 0 {
		return nil, fmt.Errorf("a vector of %d numbers", n)
	}
	size, rank := world.Size(), world.Rank()
	f := &Field{world: world, first: n * rank / size, total: n}
	f.piece = make([]float64, n*(rank+1)/size-f.first)
	for i := range f.piece {
		f.piece[i] = of(f.first + i)
	}
	return f, nil
}

// Sum is the sum of all numbers. It is collective.
func (f *Field) Sum() (float64, error) {
	sum := []float64{0}
	for _, v := range f.piece {
		sum[0] += v
	}
	err := mpi.Allreduce(f.world, mpi.InPlace[float64](), sum, mpi.Sum[float64]())
	return sum[0], err
}

// At is one number of the vector. It is collective.
func (f *Field) At(i int) (float64, error) {
	if i < 0 || i >= f.total {
		return 0, fmt.Errorf("number %d of a vector of %d", i, f.total)
	}
	v := []float64{0}
	if i >= f.first && i < f.first+len(f.piece) {
		v[0] = f.piece[i-f.first]
	}
	err := mpi.Allreduce(f.world, mpi.InPlace[float64](), v, mpi.Sum[float64]())
	return v[0], err
}

// Accumulate replaces each number by the sum of all numbers up to it. It is collective.
func (f *Field) Accumulate() error {
	for i := 1; i < len(f.piece); i++ {
		f.piece[i] += f.piece[i-1]
	}
	own, before := []float64{0}, []float64{0}
	if len(f.piece) > 0 {
		own[0] = f.piece[len(f.piece)-1]
	}
	if err := mpi.Exscan(f.world, own, before, mpi.Sum[float64]()); err != nil {
		return err
	}
	if f.world.Rank() > 0 {
		for i := range f.piece {
			f.piece[i] += before[0]
		}
	}
	return nil
}

// ErrShort is the error of Smooth for a vector in which a rank has no number.
var ErrShort = errors.New("a rank has no number")

// Smooth replaces each number by the mean of itself and its neighbors, those at the ends being neighbors too.
// It is collective.
func (f *Field) Smooth() error {
	size, rank := f.world.Size(), f.world.Rank()
	if f.total < size {
		return fmt.Errorf("%w: %d numbers for %d ranks", ErrShort, f.total, size)
	}
	left, right := (rank+size-1)%size, (rank+1)%size
	n := len(f.piece)
	fromLeft, fromRight := []float64{0}, []float64{0}
	if _, err := mpi.Sendrecv(f.world, f.piece[n-1:], right, 0, fromLeft, left, 0); err != nil {
		return err
	}
	if _, err := mpi.Sendrecv(f.world, f.piece[:1], left, 1, fromRight, right, 1); err != nil {
		return err
	}
	before := fromLeft[0]
	for i, v := range f.piece {
		after := fromRight[0]
		if i+1 < n {
			after = f.piece[i+1]
		}
		f.piece[i] = (before + v + after) / 3
		before = v
	}
	return nil
}

// Gather returns the vector at rank root, and nil at the others. It is collective.
func (f *Field) Gather(root int) ([]float64, error) {
	size := f.world.Size()
	counts, displs := make([]int, size), make([]int, size)
	for rank := range size {
		displs[rank] = f.total * rank / size
		counts[rank] = f.total*(rank+1)/size - displs[rank]
	}
	var all []float64
	if f.world.Rank() == root {
		all = make([]float64, f.total)
	}
	return all, mpi.Gatherv(f.world, f.piece, all, counts, displs, root)
}
