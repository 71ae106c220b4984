package main

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// area is a rectangle of the plate, in cells.
type area struct{ x, y, width, height int }

// split arranges the ranks in the grid that fits the plate and cuts it along the fewest cells: the blocks are
// as square as can be.
func split(ranks, width, height int) (columns, rows int, err error) {
	shortest := -1
	for c := 1; c <= ranks; c++ {
		r := ranks / c
		if c*r != ranks || c > width || r > height {
			continue
		}
		if cut := (c-1)*height + (r-1)*width; shortest < 0 || cut < shortest {
			columns, rows, shortest = c, r, cut
		}
	}
	if shortest < 0 {
		return 0, 0, fmt.Errorf("%d ranks cannot share a plate of %d × %d cells: no grid of that many "+
			"ranks has a cell for each; "+
			"use fewer ranks, or a larger -width or -height", ranks, width, height)
	}
	return columns, rows, nil
}

// area is the block of a rank. Ranks are numbered along the rows of the grid; blocks differ by one row or
// column at most.
func (p problem) area(rank int) area {
	column, row := rank%p.Columns, rank/p.Columns
	x, y := column*p.Width/p.Columns, row*p.Height/p.Rows
	return area{x, y, (column+1)*p.Width/p.Columns - x, (row+1)*p.Height/p.Rows - y}
}

// intersect returns the common part of two areas.
func (a area) intersect(b area) area {
	x, y := max(a.x, b.x), max(a.y, b.y)
	width, height := min(a.x+a.width, b.x+b.width)-x, min(a.y+a.height, b.y+b.height)-y
	if width <= 0 || height <= 0 {
		return area{}
	}
	return area{x, y, width, height}
}

// largest is the size of the largest block, in cells.
func (p problem) largest() int {
	return ((p.Width + p.Columns - 1) / p.Columns) * ((p.Height + p.Rows - 1) / p.Rows)
}

// neighbor returns the rank dx columns and dy rows away; beyond the plate mpi.ProcNull, with which messages
// do nothing.
func (p problem) neighbor(rank, dx, dy int) int {
	column, row := rank%p.Columns+dx, rank/p.Columns+dy
	if column < 0 || column >= p.Columns || row < 0 || row >= p.Rows {
		return mpi.ProcNull
	}
	return row*p.Columns + column
}
