package mpi_test

import (
	"context"
	"fmt"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// run stands in the examples for a program that calls mpi.Run with the body, and that is started by weft run -n N.
func run(n int, body func(ctx context.Context, world *mpi.Comm) error) {
	launchertest.Example(n, func() error { return mpi.Run(context.Background(), body) })
}

// runSurviving is run under weft run --survive.
func runSurviving(n int, body func(ctx context.Context, world *mpi.Comm) error) {
	launchertest.ExampleSurviving(n, func() error { return mpi.Run(context.Background(), body) })
}

// In all examples, run(N, body) stands for mpi.Run(context.Background(), body) in a program that is started by
// weft run -n N. The ranks' lines come in any order.
func Example() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		fmt.Println("rank", world.Rank(), "of", world.Size())
		return nil
	})
	// Unordered output:
	// rank 0 of 3
	// rank 1 of 3
	// rank 2 of 3
}

// An error of the body ends the whole job. The launcher prints which rank failed first.
func ExampleRun() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		product := make([]float64, 1)
		if err := mpi.Allreduce(world, []float64{2}, product, mpi.Prod[float64]()); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(product[0])
		}
		return nil
	})
	// Output: 4
}

// Registered memory moves with no intermediate copy. It is freed before the end of the body.
func ExampleAlloc() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		field, err := mpi.Alloc[float64](1 << 20)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			field[1<<20-1] = 0.5
		}
		if err := mpi.Bcast(world, field, 0); err != nil {
			return err
		}
		fmt.Println(field[1<<20-1])
		return mpi.Free(field)
	})
	// Output:
	// 0.5
	// 0.5
}

// Part divides items among ranks; the parts differ by at most one item.
func ExamplePart() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		first, count := mpi.Part(10, world.Rank(), world.Size())
		fmt.Println("rank", world.Rank(), "has items", first, "to", first+count-1)
		return nil
	})
	// Unordered output:
	// rank 0 has items 0 to 3
	// rank 1 has items 4 to 6
	// rank 2 has items 7 to 9
}
