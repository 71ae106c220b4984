package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weft-mpi/weft/mpi"
)

// checkpointer is a program that goes on for a while after SIGTERM, as one that writes a checkpoint does, or
// if it has an argument, one that does not handle SIGTERM.
func checkpointer() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		got := make(chan os.Signal, 10)
		if len(os.Args) == 1 {
			signal.Notify(got, syscall.SIGTERM, syscall.SIGUSR1)
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if err := os.WriteFile(fmt.Sprint("ready.", world.Rank()), nil, 0o666); err != nil {
			return err
		}
		fmt.Println("first", <-got)
		sum := make([]int, 1)
		if err := mpi.Allreduce(world, mpi.InPlace[int](), sum, mpi.Sum[int]()); err != nil {
			return err
		}
		// A second SIGTERM of the first one's would be there by now, for the launcher sends this one later.
		if world.Rank() == 0 {
			if err := os.WriteFile("checkpoint", nil, 0o666); err != nil {
				return err
			}
		}
		fmt.Println("then", <-got)
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
