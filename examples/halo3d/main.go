// Halo3d exchanges the faces of a block of a 3-D grid with its six neighbors.
//
//	weft run -n 8 ./examples/halo3d
//
// The block of a rank has a layer of ghost cells around it, which hold what its neighbors have there. A face
// is a Sub of the block's array, a view that is sent and received as it lies: nothing is packed.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weft-mpi/weft/mpi"
)

const side = 12 // cells of a block in each dimension, without ghosts

func main() {
	log.SetFlags(0)
	log.SetPrefix("halo3d: ")
	if err := mpi.Run(context.Background(), exchange); err != nil {
		log.Fatal(err)
	}
}

// block is a rank's part of the grid.
type block struct {
	cells []float64
	shape []int // with ghosts
}

func newBlock() *block {
	n := side + 2
	return &block{make([]float64, n*n*n), []int{n, n, n}}
}

func (b *block) at(x, y, z int) *float64 { return &b.cells[(x*b.shape[1]+y)*b.shape[2]+z] }

// face is the layer of cells with an index in a dimension, without the ghosts at its edges.
func (b *block) face(dim, index int) mpi.View[float64] {
	start, size := []int{1, 1, 1}, []int{side, side, side}
	start[dim], size[dim] = index, 1
	return mpi.Sub(b.cells, b.shape, start, size)
}

// halo fills the ghost cells.
func (b *block) halo(grid *mpi.Cart) error {
	for dim := range 3 {
		for _, way := range []struct{ by, out, ghost int }{{1, side, 0}, {-1, 1, side + 1}} {
			from, to := grid.Shift(dim, way.by)
			_, err := mpi.SendrecvView(grid.Comm(), b.face(dim, way.out), to, dim,
				b.face(dim, way.ghost), from, dim)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func exchange(_ context.Context, world *mpi.Comm) error {
	dims := make([]int, 3)
	if err := mpi.DimsCreate(world.Size(), dims); err != nil {
		return err
	}
	grid, err := world.Cart(dims, []bool{true, true, true}, false)
	if err != nil {
		return err
	}
	me, err := grid.Coords(grid.Comm().Rank())
	if err != nil {
		return err
	}
	b := newBlock()
	for x := range side {
		for y := range side {
			for z := range side {
				*b.at(x+1, y+1, z+1) = number(me[0]*side+x, me[1]*side+y, me[2]*side+z, dims)
			}
		}
	}
	if err := b.halo(grid); err != nil {
		return err
	}
	// Every ghost has the number of its place in the whole grid, which goes round in each dimension.
	wrong := make([]int64, 1)
	for i := range side {
		for j := range side {
			for dim := range 3 {
				for _, ghost := range []int{0, side + 1} {
					c := [3]int{i + 1, j + 1, ghost}
					c[dim], c[2] = c[2], c[dim]
					x, y, z := me[0]*side+c[0]-1, me[1]*side+c[1]-1, me[2]*side+c[2]-1
					if *b.at(c[0], c[1], c[2]) != number(x, y, z, dims) {
						wrong[0]++
					}
				}
			}
		}
	}
	if err := mpi.Allreduce(world, mpi.InPlace[int64](), wrong, mpi.Sum[int64]()); err != nil {
		return err
	}
	if wrong[0] > 0 {
		return fmt.Errorf("%d ghosts are wrong", wrong[0])
	}
	if world.Rank() == 0 {
		fmt.Printf("%d ghosts of %v blocks are as they must be\n", 6*side*side*world.Size(), dims)
	}
	return nil
}

// number returns the number of a place in the grid.
func number(x, y, z int, dims []int) float64 {
	wrap := func(i, d int) int { return (i + dims[d]*side) % (dims[d] * side) }
	return float64((wrap(x, 0)*1000+wrap(y, 1))*1000 + wrap(z, 2))
}
