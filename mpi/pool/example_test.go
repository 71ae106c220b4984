package pool_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/pool"
)

// Rank 0 has words, the other ranks count their letters, and rank 0 gets the numbers in order.
func ExampleMap() {
	words := []string{"warp", "weft", "shuttle"}
	letters := func(_ context.Context, word string) (int, error) { return len(word), nil }
	err := mpi.Run(context.Background(), func(ctx context.Context, world *mpi.Comm) error {
		sum := 0
		for n, err := range pool.Map(ctx, world, slices.Values(words), letters,
			pool.Progress(os.Stderr, len(words))) {
			if err != nil {
				return err
			}
			sum += n
		}
		if world.Rank() == 0 {
			fmt.Println(sum) // 15
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
