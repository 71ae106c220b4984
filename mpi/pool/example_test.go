package pool_test

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/pool"
)

// run stands for a program that calls mpi.Run with the body, and that is started by weft run -n N.
func run(n int, body func(ctx context.Context, world *mpi.Comm) error) {
	launchertest.Example(n, func() error { return mpi.Run(context.Background(), body) })
}

// Rank 0 has words, the other ranks count their letters, and rank 0 gets the numbers in order.
func ExampleMap() {
	words := []string{"warp", "weft", "shuttle"}
	letters := func(_ context.Context, word string) (int, error) { return len(word), nil }
	run(3, func(ctx context.Context, world *mpi.Comm) error {
		sum := 0
		for n, err := range pool.Map(ctx, world, slices.Values(words), letters,
			pool.Progress(os.Stderr, len(words))) {
			if err != nil {
				return err
			}
			sum += n
		}
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return nil
	})
	// Output: 15
}
