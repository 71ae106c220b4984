package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/checkpoint"
)

const (
	steps    = 1000
	interval = 50
	dir      = "/scratch/solver"
)

// What the program computes.
func initial(c *mpi.Comm) []byte              { return nil }
func compute(c *mpi.Comm, state []byte) error { return nil }

// The first error ends the job.
func Example_failFast() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		state := initial(world)
		for step := range steps {
			if err := compute(world, state); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// With weft run --restarts the job starts again, and goes on from the last checkpoint.
func Example_restart() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		store, err := checkpoint.Open(world, dir, "solver, 4096 cells")
		if err != nil {
			return err
		}
		step, state, err := store.Load(nil)
		if errors.Is(err, checkpoint.ErrNone) {
			step, state, err = 0, initial(world), nil
		}
		if err != nil {
			return err
		}
		for step < steps {
			if err := compute(world, state); err != nil {
				return err
			}
			if step++; step%interval == 0 {
				if err := store.Save(step, state); err != nil {
					return err
				}
			}
		}
		return store.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
}
