package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// Each rank has a process of its own, also in the second call of a test, and in a subtest.
func TestProcesses(t *testing.T) {
	parent := os.Getpid()
	body := func(ctx context.Context, world *mpi.Comm) error {
		pids, err := mpi.AllgatherValues(world, os.Getpid())
		if err != nil {
			return err
		}
		if os.Getppid() != parent && len(pids) > 1 && pids[0] == pids[1] {
			return fmt.Errorf("the ranks are processes %v", pids)
		}
		mpitest.T(ctx).Log("is here")
		return sums(ctx, world)
	}
	mpitest.Processes(t, 3, body)
	mpitest.Processes(t, 2, body, mpitest.Fabric("tcp"))
	t.Run("a subtest (of it)", func(t *testing.T) { mpitest.Processes(t, 2, body) })
}

// What goes wrong in processes.
func TestProcesses_Wrong(t *testing.T) {
	if os.Getenv(wrongVariable) != "" {
		t.Run("an error", func(t *testing.T) {
			mpitest.Processes(t, 2, func(_ context.Context, world *mpi.Comm) error {
				if world.Rank() == 1 {
					return errors.New("boom")
				}
				return mpi.Barrier(world)
			})
		})
		t.Run("Fatal", func(t *testing.T) {
			mpitest.Processes(t, 2, func(ctx context.Context, world *mpi.Comm) error {
				if world.Rank() == 1 {
					mpitest.T(ctx).Fatal("no good")
				}
				return mpi.Barrier(world)
			})
		})
		t.Run("a deadlock", func(t *testing.T) {
			mpitest.Processes(t, 2, func(_ context.Context, world *mpi.Comm) error {
				_, err := mpi.Recv(world, make([]int, 1), 1-world.Rank(), 5)
				return err
			})
		})
		t.Run("no rank", func(t *testing.T) { mpitest.Processes(t, 0, sums) })
		return
	}
	t.Parallel()
	out := outputOf(t, "TestProcesses_Wrong")
	for _, want := range []string{
		`--- FAIL: TestProcesses_Wrong/an_error .*\n(.*\n)*.*processes_test.go:\d+: rank 1: boom\n`,
		`--- FAIL: TestProcesses_Wrong/Fatal .*\n(.*\n)*.*processes_test.go:\d+: rank 1: no good\n`,
		`--- FAIL: TestProcesses_Wrong/a_deadlock .*\n(.*\n)*.*rank 1: Recv from 0, tag 5, at processes_test.go:\d+`,
		`processes_test.go:\d+: mpitest: Processes with 0 ranks`,
	} {
		require.Regexp(t, want, out)
	}
}
