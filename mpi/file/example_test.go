package file_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// Each rank writes its columns of a matrix that the file has row by row.
func Example() {
	dir, err := os.MkdirTemp("", "file")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "matrix") // on several hosts: on a file system that they share
	err = mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		const height, width = 2, 6
		first := width * world.Rank() / world.Size()
		columns := width*(world.Rank()+1)/world.Size() - first
		mine := make([]int32, height*columns)
		for i := range mine {
			mine[i] = int32(first + i%columns + 10*(i/columns))
		}
		f, err := file.Open(world, name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		where := file.Sub([]int{height, width}, []int{0, first}, []int{height, columns})
		if err := file.WriteAll(f, where, mpi.Whole(mine)); err != nil {
			return err
		}
		row := make([]int32, width)
		n, err := file.ReadAll(f, file.Range(width, width), mpi.Whole(row)) // the second row, at all ranks
		if err != nil {
			return err
		}
		fmt.Println(n, row)
		return f.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 6 [10 11 12 13 14 15]
}

// Each rank appends lines of which the others know nothing.
func ExampleWriteOrdered() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		f, err := file.Open(world, "run.log", os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("rank %d of %d\n", world.Rank(), world.Size())
		if err := file.WriteOrdered(f, []byte(line)); err != nil {
			return err
		}
		return f.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
}
