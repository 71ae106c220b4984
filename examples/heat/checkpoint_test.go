package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// restarted is the number of ranks, and of the starts in each of which one of them is killed.
var restarted, doomedStarts = testlength.Of(8, 4), testlength.Of(4, 2)

// doomed is the example, of which a rank is killed when a few more steps have been saved.
var doomed = launchertest.Body("doomed", func() error {
	restarts := mpi.Restarted()
	rank, err := strconv.Atoi(os.Getenv("WEFT_RANK"))
	if err != nil {
		return err
	}
	if restarts < doomedStarts && rank == 3*restarts%restarted {
		go func() {
			for latest("saved") < 100*(restarts+1) {
				time.Sleep(time.Millisecond)
			}
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
	}
	main()
	return nil
})

// latest is the latest step in the names of a folder.
func latest(folder string) (step int) {
	list, _ := os.ReadDir(folder)
	for _, e := range list {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "step-%d-", &n); err == nil {
			step = max(step, n)
		}
	}
	return step
}

var longRun = []string{"-width", "97", "-height", "61", "-steps", "1500", "-check=false", "-output", "out.png"}

func picture(t *testing.T, dir string) []byte {
	b, err := os.ReadFile(filepath.Join(dir, "out.png"))
	require.NoError(t, err)
	return b
}

// However often a rank is killed, the picture is that of a run without any trouble, bit for bit.
func TestThePictureAfterRestarts(t *testing.T) {
	undisturbed, dir := t.TempDir(), t.TempDir()
	_, stderr, err := exampletest.Launch(t, restarted, undisturbed, longRun...)
	require.NoError(t, err, stderr)
	app := launchertest.Ranks(restarted, doomed)
	app.Args, app.Dir = append([]string{"-checkpoint", "saved", "-checkpoint-every", "50"}, longRun...), dir
	r := launchertest.RunAgain(t, doomedStarts, app)
	require.NoError(t, r.Failure, r.Err)
	require.Contains(t, r.Err, fmt.Sprintf("restart %d of %[1]d", doomedStarts))
	require.Equal(t, doomedStarts, strings.Count(r.Err, "was killed by signal 9"), r.Err)
	require.Regexp(t, `(?m)^checkpoint  the \d+ steps up to it were not computed again$`, r.Out)
	require.Equal(t, picture(t, undisturbed), picture(t, dir))
}

// What four ranks have saved, three and one go on with.
func TestThePictureOnAnotherNumberOfRanks(t *testing.T) {
	undisturbed, dir := t.TempDir(), t.TempDir()
	args := func(steps int) []string {
		return []string{"-width", "31", "-height", "23", "-steps", fmt.Sprint(steps), "-output", "out.png"}
	}
	_, stderr, err := exampletest.Launch(t, 2, undisturbed, args(90)...)
	require.NoError(t, err, stderr)
	for i, ranks := range []int{4, 3, 1} {
		stdout, stderr, err := exampletest.Launch(t, ranks, dir,
			append(args(30*(i+1)), "-checkpoint", "saved", "-checkpoint-every", "10")...)
		require.NoError(t, err, stderr)
		require.Contains(t, stdout, "comparison  bit for bit what one rank computes alone")
		if i > 0 {
			require.Contains(t, stdout, fmt.Sprintf("checkpoint  the %d steps", 30*i))
		}
	}
	require.Equal(t, picture(t, undisturbed), picture(t, dir))
	_, stderr, status := exampletest.Alone(t, dir, append(args(20), "-checkpoint", "saved")...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "heat: -checkpoint: the plate was saved after 90 steps, and -steps is 20")
	_, stderr, status = exampletest.Alone(t, dir, "-width", "9", "-height", "9", "-checkpoint", "saved")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, `is of "heat: 31 × 23 cells`)
}
