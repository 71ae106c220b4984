// Hang is a program whose ranks 0 and 2 wait for each other for ever, and the others for them.
package main

import (
	"context"
	"os"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		switch world.Rank() {
		case 0:
			_, err := mpi.Recv(world, make([]int, 1), 2, 5)
			return err
		case 2:
			_, err := mpi.Recv(world, make([]int, 1), 0, 6)
			return err
		}
		return mpi.Barrier(world)
	})
	if err != nil {
		os.Exit(1)
	}
}
