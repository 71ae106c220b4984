package npy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/npy"
)

// run stands for a program that calls mpi.Run with the body, and that is started by weft run -n N.
func run(n int, body func(ctx context.Context, world *mpi.Comm) error) {
	launchertest.Example(n, func() error { return mpi.Run(context.Background(), body) })
}

// Each rank writes some rows of a matrix, and then reads a column.
func Example() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		var dir string // on several hosts: on a file system that they share
		var err error
		if world.Rank() == 0 {
			if dir, err = os.MkdirTemp("", "npy"); err != nil {
				return err
			}
			defer os.RemoveAll(dir)
		}
		if dir, err = mpi.BcastValue(world, dir, 0); err != nil {
			return err
		}
		name := filepath.Join(dir, "matrix.npy")
		const height, width = 4, 3
		first, rows := mpi.Part(height, world.Rank(), world.Size())
		mine := make([]float64, rows*width)
		for i := range mine {
			mine[i] = float64(first*width + i)
		}
		a, err := npy.Create[float64](world, name, npy.Rows, height, width)
		if err != nil {
			return err
		}
		if err := a.Write([]int{first, 0}, []int{rows, width}, mpi.Whole(mine)); err != nil {
			return err
		}
		if err := a.Close(); err != nil { // NumPy opens the file from here on
			return err
		}

		if a, err = npy.Open[float64](world, name); err != nil {
			return err
		}
		column := make([]float64, height)
		if err := a.Read([]int{0, world.Rank()}, []int{height, 1}, mpi.Whole(column)); err != nil {
			return err
		}
		fmt.Println(a.Shape(), column)
		return a.Close()
	})
	// Unordered output:
	// [4 3] [0 3 6 9]
	// [4 3] [1 4 7 10]
	// [4 3] [2 5 8 11]
}
