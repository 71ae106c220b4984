package mpi_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// sumBody adds the ranks up, so that every rank has to reach a peer and prove the job's secret to it.
var sumBody = body("sum of the ranks", func(_ context.Context, world *mpi.Comm) error {
	sum := make([]int, 1)
	if err := mpi.Allreduce(world, []int{world.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: sum %d\n", world.Rank(), world.Size(), sum[0])
	return nil
})

// underHydra runs a body under MPICH's launcher, and returns what the ranks have said.
func underHydra(t *testing.T, env []string, options ...string) (string, error) {
	t.Helper()
	hydra, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Skip("mpiexec.hydra is not installed (Debian: mpich)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, hydra, append(options, "-n", "3", os.Args[0])...)
	c.Env = append(append(os.Environ(), launchertest.Environ(sumBody)...), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// Under another launcher rank 0 makes the secret and the launcher passes it on, by its descriptors or its
// port; or all have it from a file.
func TestUnderHydra(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("s"), 32), 0o600))
	for _, options := range [][]string{nil, {"-pmi-port"}} {
		for _, env := range [][]string{nil, {"WEFT_SECRET_FILE=" + file}} {
			t.Run(fmt.Sprint(options, len(env)), func(t *testing.T) {
				out, err := underHydra(t, env, options...)
				require.NoError(t, err, "%s", out)
				for r := range 3 {
					require.Contains(t, out, fmt.Sprintf("rank %d of 3: sum 3\n", r))
				}
			})
		}
	}
}

func TestUnderHydraWithASecretThatOthersCanRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("s"), 32), 0o600))
	require.NoError(t, os.Chmod(file, 0o640))
	out, err := underHydra(t, []string{"WEFT_SECRET_FILE=" + file})
	require.Error(t, err)
	require.Contains(t, out, "chmod 600 "+file)
	require.NotContains(t, out, "sum")
}

// Started by a launcher that cannot be spoken to, Init fails with what to do; it never makes a world of one.
func TestForeignLauncher(t *testing.T) {
	for variable, advice := range map[string]string{
		"OMPI_COMM_WORLD_SIZE=4": "weft run", "PMIX_RANK=0": "weft run",
		"SLURM_STEP_NUM_TASKS=4": "--mpi=pmi2", "SLURM_PROCID=1": "--mpi=pmi2",
		"FLUX_JOB_SIZE=2": "pmi=simple", "PMI_SIZE=2": "PMI_PORT", "WEFT_SIZE=4": "PMI_FD",
	} {
		c := exec.Command(os.Args[0])
		c.Env = append(append(os.Environ(), launchertest.Environ(sumBody)...), variable)
		out, err := c.CombinedOutput()
		require.Error(t, err, variable)
		require.Contains(t, string(out), advice, variable)
		require.NotContains(t, string(out), "sum", variable)
	}
}

// Open MPI's launcher offers PMIx only: several ranks are refused, with what to do, and one is a world of
// one.
func TestUnderOpenMPI(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun.openmpi")
	if err != nil {
		t.Skip("mpirun.openmpi is not installed (Debian: openmpi-bin)")
	}
	run := func(n string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, mpirun, "--allow-run-as-root", "--oversubscribe", "-n", n, os.Args[0])
		c.Env = append(os.Environ(), launchertest.Environ(sumBody)...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := run("2")
	require.Error(t, err)
	require.Contains(t, out, "which weft does not speak: start it with `weft run`")
	require.NotContains(t, out, "sum")
	out, err = run("1")
	require.NoError(t, err, "%s", out)
	require.Contains(t, out, "rank 0 of 1: sum 0\n")
}
