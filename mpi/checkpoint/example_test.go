package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/checkpoint"
)

// solve computes until a step, from the last checkpoint on if there is one.
func solve(world *mpi.Comm, dir string, until int) error {
	store, err := checkpoint.Open(world, dir, "solver, 4096 cells")
	if err != nil {
		return err
	}
	step, state, err := store.Load(nil)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		step, state = 0, make([]byte, 4096/world.Size())
	case err != nil:
		return err
	}
	if world.Rank() == 0 {
		fmt.Println("from step", step)
	}
	for step < until {
		state[0]++ // stands for the computation
		if step++; step%10 == 0 {
			if err := store.Save(step, state); err != nil {
				return err
			}
		}
	}
	return store.Close()
}

// A program goes on from its last checkpoint when it is started again, as by weft run --restarts. Here solve
// ends at step 25 and is called again.
func Example() {
	// Stands for a program that calls mpi.Run with the body, and that is started by weft run -n 2.
	launchertest.Example(2, func() error {
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			dir := filepath.Join(os.TempDir(), fmt.Sprintf("solver-%d", os.Getppid())) // the launcher's number
			if world.Rank() == 0 {
				defer os.RemoveAll(dir)
			}
			if err := solve(world, dir, 25); err != nil {
				return err
			}
			if err := solve(world, dir, 50); err != nil {
				return err
			}
			return mpi.Barrier(world)
		})
	})
	// Output:
	// from step 0
	// from step 20
}
