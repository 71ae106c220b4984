package main

import "github.com/weft-mpi/weft/mpi"

// grid is a square of complex numbers, of which each rank has as many rows.
type grid struct {
	world        *mpi.Comm
	size         int // rows, and columns
	rows, first  int // this rank's
	values       []complex128
	packed, came []complex128 // what a transpose sends and receives
	*transformer
}

func newGrid(world *mpi.Comm, size int) *grid {
	rows := size / world.Size()
	numbers := func() []complex128 { return make([]complex128, rows*size) }
	return &grid{world: world, size: size, rows: rows, first: rows * world.Rank(), values: numbers(),
		packed: numbers(), came: numbers(), transformer: newTransformer(size)}
}

// row is one of this rank's rows.
func (g *grid) row(y int) []complex128 { return g.values[y*g.size:][:g.size] }

// transpose makes rows of the columns. The block of this rank's rows that is for a rank is as wide as the
// rank will have rows; it goes on its way transposed.
func (g *grid) transpose() error {
	block := g.rows * g.rows
	for y := range g.rows {
		row := g.row(y)
		for rank := range g.world.Size() {
			to := g.packed[rank*block:][:block]
			for x, value := range row[rank*g.rows:][:g.rows] {
				to[x*g.rows+y] = value
			}
		}
	}
	if err := mpi.Alltoall(g.world, g.packed, g.came); err != nil {
		return err
	}
	// The block that comes from a rank has the columns that were its rows.
	for rank := range g.world.Size() {
		from := g.came[rank*block:][:block]
		for y := range g.rows {
			copy(g.row(y)[rank*g.rows:], from[y*g.rows:][:g.rows])
		}
	}
	return nil
}
