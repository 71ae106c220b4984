// Hello prints a line from every rank: weft run -n 4 ./examples/hello
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		_, err := fmt.Printf("hello from rank %d of %d\n", world.Rank(), world.Size())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
