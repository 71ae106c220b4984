package main

import "github.com/weft-mpi/weft/mpi"

// gather puts the ranks' blocks together at rank 0, and gives it the cells of the whole plate, row by row. A
// Gather takes as much from every rank, so all send as many cells as the largest block has.
func gather(world *mpi.Comm, p problem, block *plate) ([]float64, error) {
	size := p.largest()
	mine := make([]float64, size)
	copy(mine, block.values())
	var all []float64
	if world.Rank() == 0 {
		all = make([]float64, size*world.Size())
	}
	if err := mpi.Gather(world, mine, all, 0); err != nil || world.Rank() != 0 {
		return nil, err
	}
	field := make([]float64, p.Width*p.Height)
	for rank := range world.Size() {
		a, cells := p.area(rank), all[rank*size:]
		for y := range a.height {
			copy(field[(a.y+y)*p.Width+a.x:], cells[y*a.width:][:a.width])
		}
	}
	return field, nil
}
