package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// run stands for a program that calls mpi.Run with the body, and that is started by weft run -n N.
func run(n int, body func(ctx context.Context, world *mpi.Comm) error) {
	launchertest.Example(n, func() error { return mpi.Run(context.Background(), body) })
}

// Each rank writes its columns of a matrix that the file has row by row.
func Example() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		var dir string // on several hosts: on a file system that they share
		var err error
		if world.Rank() == 0 {
			if dir, err = os.MkdirTemp("", "file"); err != nil {
				return err
			}
			defer os.RemoveAll(dir)
		}
		if dir, err = mpi.BcastValue(world, dir, 0); err != nil {
			return err
		}
		const height, width = 2, 6
		first, columns := mpi.Part(width, world.Rank(), world.Size())
		mine := make([]int32, height*columns)
		for i := range mine {
			mine[i] = int32(first + i%columns + 10*(i/columns))
		}
		f, err := file.Open(world, filepath.Join(dir, "matrix"), os.O_RDWR|os.O_CREATE, 0o666)
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
		if world.Rank() == 0 {
			fmt.Println(n, row)
		}
		return f.Close()
	})
	// Output: 6 [10 11 12 13 14 15]
}

// Each rank appends lines of which the others know nothing.
func ExampleWriteOrdered() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		var dir string // on several hosts: on a file system that they share
		var err error
		if world.Rank() == 0 {
			if dir, err = os.MkdirTemp("", "file"); err != nil {
				return err
			}
			defer os.RemoveAll(dir)
		}
		if dir, err = mpi.BcastValue(world, dir, 0); err != nil {
			return err
		}
		name := filepath.Join(dir, "run.log")
		f, err := file.Open(world, name, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("rank %d of %d\n", world.Rank(), world.Size())
		if err := file.WriteOrdered(f, []byte(line)); err != nil {
			return err
		}
		if err := f.Close(); err != nil || world.Rank() > 0 {
			return err
		}
		text, err := os.ReadFile(name)
		fmt.Printf("%s", text)
		return err
	})
	// Output:
	// rank 0 of 3
	// rank 1 of 3
	// rank 2 of 3
}
