package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/npy"
)

// files are names of files with the temperatures of the whole plate.
type files struct{ From, To string }

// cells returns the cells of a block without its margin.
func (p *plate) cells() mpi.View[float64] {
	return mpi.Sub(p.now, []int{p.height + 2, p.stride}, []int{1, 1}, []int{p.height, p.width})
}

// place returns the position of a block in the file: rows first.
func (a area) place() (start, size []int) { return []int{a.y, a.x}, []int{a.height, a.width} }

// read has each rank read its block.
func (f files) read(world *mpi.Comm, p problem, block *plate) error {
	if f.From == "" {
		return nil
	}
	a, err := npy.Open[float64](world, f.From)
	if err != nil {
		return fmt.Errorf("-from: %w", err)
	}
	if want := []int{p.Height, p.Width}; !slices.Equal(a.Shape(), want) {
		err = fmt.Errorf("%s has an array of shape %v, and the plate's is %v", f.From, a.Shape(), want)
	} else {
		start, size := block.place()
		err = a.Read(start, size, block.cells())
	}
	if err = errors.Join(err, a.Close()); err != nil {
		return fmt.Errorf("-from: %w", err)
	}
	return nil
}

// write has each rank write its block.
func (f files) write(world *mpi.Comm, p problem, block *plate) error {
	if f.To == "" {
		return nil
	}
	a, err := npy.Create[float64](world, f.To, npy.Rows, p.Height, p.Width)
	if err == nil {
		start, size := block.place()
		err = errors.Join(a.Write(start, size, block.cells()), a.Close())
	}
	if err != nil {
		return fmt.Errorf("-field: %w", err)
	}
	return nil
}
