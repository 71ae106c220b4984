package mpi_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// A process without a launcher, which uses a rank that only a job would have, is told how to start one. In a
// job, even of one rank, it is not.
func TestAlone(t *testing.T) {
	const advice = "world has ranks 0 to 0; this process was started alone: weft run -n 2 PROGRAM"
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), launchertest.Environ(toOthers)...)
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "no such rank: 1; "+advice)
	require.Contains(t, string(out), "invalid root: 1; "+advice)
	r := launch(t, 1, toOthers)
	require.Contains(t, r.Err, "no such rank: 1; world has ranks 0 to 0\n")
	require.Contains(t, r.Err, "invalid root: 1; world has ranks 0 to 0\n")
}

var toOthers = body("to others", func(_ context.Context, world *mpi.Comm) error {
	return errors.Join(mpi.Send(world, []int{1}, 1, 0), mpi.Bcast(world, []int{1}, 1))
})
