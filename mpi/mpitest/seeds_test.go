package mpitest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// compose composes the functions x → ax+b of the ranks, that of rank 0 first, at rank 0. It is the wrong program
// of docs/guide/testing.md: it takes the functions in the order in which they come.
func compose(world *mpi.Comm, a, b int) (int, int, error) {
	if world.Rank() > 0 {
		return 0, 0, mpi.Send(world, []int{a, b}, 0, 0)
	}
	for range world.Size() - 1 {
		f := make([]int, 2)
		if _, err := mpi.Recv(world, f, mpi.AnySource, 0); err != nil {
			return 0, 0, err
		}
		a, b = f[0]*a, f[0]*b+f[1]
	}
	return a, b, nil
}

// TestRuns runs the wrong program with one seed after another, in a process of its own, until it fails.
func TestRuns(t *testing.T) {
	if os.Getenv(wrongVariable) != "" {
		mpitest.Run(t, 3, func(_ context.Context, world *mpi.Comm) error {
			_, b, err := compose(world, 2, world.Rank())
			if err == nil && world.Rank() == 0 && b != 4 {
				err = fmt.Errorf("got %d", b)
			}
			return err
		})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRuns$", "-mpitest.seed=2", "-mpitest.runs=10000")
	cmd.Env = append(os.Environ(), wrongVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `rank 0: got 5\n *the seed was (\d+): -mpitest.seed=\d+ uses it again`, string(out))

	cmd = exec.Command(os.Args[0], "-test.run=^TestRuns$", "-mpitest.runs=5", "./solver")
	cmd.Env = append(os.Environ(), wrongVariable+"=1")
	out, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "write go test ./solver -mpitest.runs=5")
}
