package main

import (
	"fmt"
	"math"

	"github.com/weft-mpi/weft/mpi"
)

// outcome is the result of the iteration.
type outcome struct {
	iterations int
	residual   float64
}

// iteration is the state of the method: this rank's parts of its vectors.
type iteration struct {
	m         *matrix
	x         []float64
	residual  []float64 // b - Ax
	scaled    []float64 // the residual, divided by the diagonal (Jacobi's preconditioner)
	direction []float64 // in which x goes next
	image     []float64 // A times the direction
	diagonal  []float64
	squared   float64 // product of the residual with itself
	weight    float64 // product of the residual with the scaled one
}

// solve computes this rank's part of x from that of b.
func solve(m *matrix, b []float64, p problem) ([]float64, outcome, error) {
	vector := func() []float64 { return make([]float64, len(b)) }
	it := &iteration{m: m, x: vector(), residual: append([]float64(nil), b...), scaled: vector(),
		direction: vector(), image: vector(), diagonal: vector()}
	for row := range it.diagonal {
		it.diagonal[row] = m.inner.at(row, row)
	}
	if err := it.weigh(); err != nil {
		return nil, outcome{}, err
	}
	copy(it.direction, it.scaled)
	enough := p.Tolerance * math.Sqrt(it.squared)
	var done outcome
	for done.residual = math.Sqrt(it.squared); done.residual > enough; done.residual = math.Sqrt(it.squared) {
		if done.iterations == p.Iterations {
			return nil, done, fmt.Errorf("rank %d: no solution in %d iterations: the residual is %.3g, and "+
				"should be %.3g; use more -iterations or a larger -tolerance", m.rank(), p.Iterations,
				done.residual, enough)
		}
		if err := it.step(); err != nil {
			return nil, done, err
		}
		done.iterations++
	}
	return it.x, done, nil
}

// step goes as far in the direction as makes the error smallest, and chooses the next direction.
func (it *iteration) step() error {
	if err := it.m.times(it.direction, it.image); err != nil {
		return err
	}
	curvature := []float64{dot(it.direction, it.image)}
	if err := it.m.sum(curvature); err != nil {
		return err
	}
	if !(curvature[0] > 0) { // not a number, too
		return fmt.Errorf("rank %d: the matrix is not positive definite: there is a d with dᵀAd = %.3g",
			it.m.rank(), curvature[0])
	}
	length := it.weight / curvature[0]
	for i := range it.x {
		it.x[i] += length * it.direction[i]
		it.residual[i] -= length * it.image[i]
	}
	before := it.weight
	if err := it.weigh(); err != nil {
		return err
	}
	for i := range it.direction {
		it.direction[i] = it.scaled[i] + it.weight/before*it.direction[i]
	}
	return nil
}

// weigh computes the scaled residual, and both products of the residual by one Allreduce.
func (it *iteration) weigh() error {
	for i, r := range it.residual {
		it.scaled[i] = r / it.diagonal[i]
	}
	products := []float64{dot(it.residual, it.residual), dot(it.residual, it.scaled)}
	err := it.m.sum(products)
	it.squared, it.weight = products[0], products[1]
	return err
}

// dot is this rank's part of a scalar product.
func dot(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// sum adds up the numbers of all ranks.
func (m *matrix) sum(numbers []float64) error {
	return mpi.Allreduce(m.graph.Comm(), mpi.InPlace[float64](), numbers, mpi.Sum[float64]())
}

func (m *matrix) rank() int { return m.graph.Comm().Rank() }
