// Ring passes a token around the ranks: weft run -n 4 ./examples/ring
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	if err := mpi.Run(context.Background(), ring); err != nil {
		log.Fatal(err)
	}
}

// ring is the same function at all ranks; what a rank does follows from its number. Each rank adds one to the
// token, so rank 0 gets back how many there are.
func ring(_ context.Context, world *mpi.Comm) error {
	const tag = 0
	rank, size := world.Rank(), world.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	token := make([]int, 1)
	receive := func() error {
		_, err := mpi.Recv(world, token, previous, tag)
		if err == nil { // the ranks take turns, but their lines may come in another order
			fmt.Printf("rank %d of %d has the token from rank %d\n", rank, size, previous)
		}
		return err
	}
	if rank > 0 {
		if err := receive(); err != nil {
			return err
		}
	}
	// Isend does not wait for the receiver, which is this rank itself if it is alone.
	sending, err := mpi.Isend(world, []int{token[0] + 1}, next, tag)
	if err != nil {
		return err
	}
	if rank == 0 {
		if err := receive(); err != nil {
			return err
		}
		if token[0] != size {
			return fmt.Errorf("the token is %d after %d ranks", token[0], size)
		}
	}
	_, err = sending.Wait()
	return err
}
