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

const interval = 10 // steps between two checkpoints

// computed counts the steps that this rank has computed, for the output.
var computed int

// What the program computes.
func initial(world *mpi.Comm) []byte { return make([]byte, 4096/world.Size()) }

func compute(_ *mpi.Comm, state []byte) error {
	state[0]++
	computed++
	return nil
}

// failFast ends the job at the first error.
func failFast(world *mpi.Comm, steps int) error {
	state := initial(world)
	for step := range steps {
		if err := compute(world, state); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// restart goes on from the last checkpoint, if there is one.
func restart(world *mpi.Comm, dir string, steps int) error {
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
}

// run stands for a program that calls mpi.Run with the body, and that is started by weft run -n 2. Rank 0
// prints how many steps each call has computed.
func run(calls ...func(world *mpi.Comm, dir string) error) {
	launchertest.Example(2, func() error {
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			dir := filepath.Join(os.TempDir(), fmt.Sprintf("solver-%d", os.Getppid())) // the launcher's number
			if world.Rank() == 0 {
				defer os.RemoveAll(dir)
			}
			for _, call := range calls {
				computed = 0
				if err := call(world, dir); err != nil {
					return err
				}
				if world.Rank() == 0 {
					fmt.Println(computed, "steps")
				}
			}
			return mpi.Barrier(world)
		})
	})
}

// Without checkpoints, a job that is started again computes all steps again.
func Example_failFast() {
	run(func(world *mpi.Comm, _ string) error { return failFast(world, 50) })
	// Output: 50 steps
}

// The program ends at step 25. Started again, as by weft run --restarts, it goes on from its last checkpoint.
func Example_restart() {
	run(func(world *mpi.Comm, dir string) error { return restart(world, dir, 25) },
		func(world *mpi.Comm, dir string) error { return restart(world, dir, 50) })
	// Output:
	// 25 steps
	// 30 steps
}
