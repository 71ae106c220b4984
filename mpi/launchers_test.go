package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/testlength"
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

// underHydra runs three ranks under MPICH's launcher, and returns what they have said.
func underHydra(t *testing.T, env []string, options ...string) (string, error) {
	t.Helper()
	return bodyUnderHydra(t, sumBody, env, append(options, "-n", "3")...)
}

func bodyUnderHydra(t *testing.T, name string, env []string, options ...string) (string, error) {
	t.Helper()
	var out output
	err := bodyInto(t, &out, name, env, options...)
	return out.String(), err
}

// bodyInto is bodyUnderHydra for a job whose output is looked at while it runs.
func bodyInto(t *testing.T, out *output, name string, env []string, options ...string) error {
	t.Helper()
	hydra, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Skip("mpiexec.hydra is not installed (Debian: mpich)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, hydra, append(options, os.Args[0])...)
	c.Env = append(append(os.Environ(), launchertest.Environ(name)...), env...)
	c.WaitDelay = time.Second
	c.Stdout, c.Stderr = out, out
	return c.Run()
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

// unkilled has a shell between Hydra and a rank. Hydra kills all ranks when a signal has ended one, whatever its
// options say; so the shell ends in another way. The signal that Hydra sends instead is not for the shell.
var unkilled = []string{"sh", "-c", `trap "" USR1; "$0"; exit 0`}

// Under Hydra a job goes on without ranks that are killed, rank 0 as well, with the option that docs/guide/failures.md
// tells and a shell.
func TestUnderHydra_Survives(t *testing.T) {
	for i, c := range []struct{ call, victims string }{
		{"AllreduceShort", "1"}, {"Shrink", "0"}, {"RingLong", "3,0"}, {"Allreduce", "1,2"},
	} {
		onFabrics(t, func(t *testing.T, fabric string) {
			if !testlength.Whole() && i%2 == 0 == (fabric == "WEFT_FABRIC=tcp") {
				return // the other half of the calls has this one
			}
			left := 4 - len(victimsOf(c.victims))
			out, err := bodyUnderHydra(t, survives, []string{"WEFT_SURVIVE=1", fabric, "SURVIVE_CALL=" + c.call,
				"SURVIVE_VICTIMS=" + c.victims, fmt.Sprint("SURVIVE_SEED=", 6*i+1)},
				append([]string{"-disable-auto-cleanup", "-n", "4"}, unkilled...)...)
			require.Equal(t, left, strings.Count(out, fmt.Sprintf("went on with %d\n", left)), "%v\n%s", err, out)
			require.NotContains(t, out, "weft:", "nothing but the result")
		})
	}
}

// Without the option Hydra ends the survivors at once. Without the shell it may end them, and the job fails.
func TestUnderHydra_EndsTheJob(t *testing.T) {
	out, err := bodyUnderHydra(t, survivesFor, []string{"WEFT_SURVIVE=1", "TEST_WITHIN=30s"}, "-n", "4")
	require.Error(t, err)
	require.NotContains(t, out, "went on")
	out, err = bodyUnderHydra(t, survivesFor, []string{"WEFT_SURVIVE=1", "TEST_WITHIN=100ms"},
		"-disable-auto-cleanup", "-n", "4")
	require.Error(t, err)
	require.Contains(t, out, "Killed (signal 9)")
}

var survivesFor = body("survives for some time", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 1 {
		die()
	}
	within, err := time.ParseDuration(os.Getenv("TEST_WITHIN"))
	time.Sleep(within)
	fmt.Println("went on")
	return err
})

// A rank that dies in Init under Hydra ends the others' Init: they would wait for it in Hydra's barrier.
func TestUnderHydra_DeathInInit(t *testing.T) {
	t.Parallel()
	out, err := bodyUnderHydra(t, diesAfterHello, []string{"WEFT_SURVIVE=1"},
		append([]string{"-disable-auto-cleanup", "-n", "3"}, unkilled...)...)
	require.Equal(t, 2, strings.Count(out, "a rank has failed before all ranks had come to Init"), "%v\n%s", err, out)
}

var diesAfterHello = launchertest.Body("dies when Hydra knows it", func() error {
	if os.Getenv("PMI_RANK") == "1" {
		client, err := pmi.FromEnv()
		if err == nil {
			err = errors.Join(client.Init(context.Background()), client.Barrier(context.Background()))
		}
		if err != nil {
			return err
		}
		// The others have come to Init: its first barrier is over.
		die()
	}
	return mpi.Run(context.Background(), func(context.Context, *mpi.Comm) error { return nil })
})

// Under a launcher that offers PMI alone each rank tells what it waits for itself, when nothing has moved for the
// time that the setting says, and the job goes on.
func TestUnderHydra_StandsStill(t *testing.T) {
	t.Parallel()
	goOn := filepath.Join(t.TempDir(), "go on")
	var said output
	ended := make(chan error, 1)
	go func() {
		ended <- bodyInto(t, &said, waitsForALateOne, []string{"WEFT_STUCK=1s", "TEST_GO_ON=" + goOn}, "-n", "2")
	}()
	said.awaitText(t, "weft:   rank 0: a message from 1 with tag 6 has come; the receive asks for tag 5\n")
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	require.NoError(t, <-ended, "%s", &said)
	require.Contains(t, said.String(), "weft: nothing has moved at rank 0 for 1s; what it waits for\n")
	require.Regexp(t, `weft:   rank 0: Recv from 1, tag 5, at launchers_test.go:\d+, for [1-9][0-9.]*s\n`,
		said.String())
	out, err := bodyUnderHydra(t, waitsForALateOne, []string{"WEFT_STUCK=never", "TEST_GO_ON=" + goOn}, "-n", "2")
	require.NoError(t, err, "%s", out)
	require.NotContains(t, out, "weft:")
}

// waitsForALateOne has rank 0 wait for a message that rank 1 sends when a file is there.
var waitsForALateOne = worldBody("waits for a late one", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 0 {
		if _, err := mpi.Recv(world, make([]int64, 1), 1, 5); err != nil {
			return err
		}
		_, err := mpi.Recv(world, make([]int64, 1), 1, 6)
		return err
	}
	if err := mpi.Send(world, []int64{1}, 0, 6); err != nil {
		return err
	}
	awaitFile(os.Getenv("TEST_GO_ON"))
	return mpi.Send(world, []int64{1}, 0, 5)
})

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
