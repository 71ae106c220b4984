package main

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// torus is the board's split among a grid of ranks.
type torus struct {
	width, height int
	grid          *mpi.Cart // rows of ranks, then columns
	row, column   *mpi.Cart // the part of the grid that this rank's row is, and its column
}

// newTorus arranges the ranks in a grid that fits the board. All ranks of the world call it.
func newTorus(world *mpi.Comm, width, height int) (*torus, error) {
	dims, err := arrange(world.Size(), width, height)
	if err != nil {
		return nil, err
	}
	// The ranks keep their order, because rank 0 is the one that has read the pattern.
	grid, err := world.Cart(dims, []bool{true, true}, false)
	if err != nil {
		return nil, err
	}
	t := &torus{width: width, height: height, grid: grid}
	if t.row, err = grid.Sub(false, true); err != nil { // along a row, the column changes
		return nil, err
	}
	if t.column, err = grid.Sub(true, false); err != nil {
		return nil, err
	}
	return t, nil
}

// arrange returns the rows and columns of a grid of ranks, each of which has at least one cell.
func arrange(ranks, width, height int) ([]int, error) {
	dims := []int{0, 0}
	if err := mpi.DimsCreate(ranks, dims); err != nil {
		return nil, err
	}
	if height < width { // more columns than rows
		dims[0], dims[1] = dims[1], dims[0]
	}
	switch {
	case dims[0] <= height && dims[1] <= width:
		return dims, nil
	case ranks <= height:
		return []int{ranks, 1}, nil
	case ranks <= width:
		return []int{1, ranks}, nil
	}
	return nil, fmt.Errorf("%d ranks cannot share %d × %d cells: each needs a row or a column; "+
		"use fewer ranks, or a larger -width or -height", ranks, width, height)
}

func (t *torus) rank() int { return t.grid.Comm().Rank() }

// area is the part of the board that a rank has.
type area struct{ x, y, width, height int }

func (t *torus) area(rank int) (area, error) {
	at, err := t.grid.Coords(rank)
	if err != nil {
		return area{}, err
	}
	dims := t.grid.Dims()
	x, y := at[1]*t.width/dims[1], at[0]*t.height/dims[0]
	return area{x, y, (at[1]+1)*t.width/dims[1] - x, (at[0]+1)*t.height/dims[0] - y}, nil
}

// areas returns the areas of all ranks, and the number of cells of each.
func (t *torus) areas() ([]area, []int, error) {
	areas, counts := make([]area, t.grid.Comm().Size()), make([]int, t.grid.Comm().Size())
	for rank := range areas {
		a, err := t.area(rank)
		if err != nil {
			return nil, nil, err
		}
		areas[rank], counts[rank] = a, a.width*a.height
	}
	return areas, counts, nil
}

// scatter gives each rank its block of the board that rank 0 has.
func (t *torus) scatter(whole board) (*block, error) {
	areas, counts, err := t.areas()
	if err != nil {
		return nil, err
	}
	var cells []uint8 // block by block
	if t.rank() == 0 {
		for _, a := range areas {
			for y := range a.height {
				cells = append(cells, whole.cells[(a.y+y)*whole.width+a.x:][:a.width]...)
			}
		}
	}
	a := areas[t.rank()]
	mine := make([]uint8, a.width*a.height)
	// Without displacements the blocks follow one another.
	if err := mpi.Scatterv(t.grid.Comm(), cells, counts, nil, mine, 0); err != nil {
		return nil, err
	}
	b := newBlock(a.width, a.height)
	b.fill(mine)
	return b, nil
}

// gather collects the blocks at rank 0. Other ranks get no board.
func (t *torus) gather(mine *block) (board, error) {
	areas, counts, err := t.areas()
	if err != nil {
		return board{}, err
	}
	var cells []uint8
	if t.rank() == 0 {
		cells = make([]uint8, t.width*t.height)
	}
	if err := mpi.Gatherv(t.grid.Comm(), mine.cells(), cells, counts, nil, 0); err != nil || t.rank() != 0 {
		return board{}, err
	}
	whole := newBoard(t.width, t.height)
	for _, a := range areas {
		for y := range a.height {
			copy(whole.cells[(a.y+y)*whole.width+a.x:], cells[:a.width])
			cells = cells[a.width:]
		}
	}
	return whole, nil
}
