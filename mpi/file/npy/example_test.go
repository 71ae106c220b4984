package npy_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/npy"
)

// Each rank writes some rows of a matrix, and then reads some columns.
func Example() {
	dir, err := os.MkdirTemp("", "npy")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "matrix.npy")
	err = mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		const height, width = 4, 3
		first := height * world.Rank() / world.Size()
		rows := height*(world.Rank()+1)/world.Size() - first
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
		if err := a.Read([]int{0, world.Rank() % width}, []int{height, 1}, mpi.Whole(column)); err != nil {
			return err
		}
		fmt.Println(a.Shape(), column)
		return a.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [4 3] [0 3 6 9]
}
