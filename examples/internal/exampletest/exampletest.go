// Package exampletest runs an example as users do, with its arguments, output and exit status. The test
// binary of the example plays the ranks itself.
package exampletest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
)

// example is the body of the ranks that run the example.
const example = "example"

// Ranks are the numbers of ranks that every example is run on.
func Ranks() []int { return testlength.Of([]int{1, 2, 4, 8}, []int{1, 2, 4}) }

// Main is an example's TestMain; program is the example's main.
func Main(m *testing.M, program func()) {
	launchertest.Body(example, func() error { program(); return nil })
	launchertest.Play()
	goleak.VerifyTestMain(m)
}

// Launch runs the example on a number of ranks, in the folder dir, and returns what it printed and why the
// job failed.
func Launch(t *testing.T, ranks int, dir string, args ...string) (stdout, stderr string, failure error) {
	t.Helper()
	r := launch(t, ranks, dir, args...)
	require.NotContains(t, r.Err, "weft: warning: ") // an example leaves no request and no message over
	return r.Out, r.Err, r.Failure
}

func launch(t *testing.T, ranks int, dir string, args ...string) launchertest.Result {
	t.Helper()
	app := launchertest.Ranks(ranks, example)
	app.Args, app.Dir = args, dir
	return launchertest.Run(t, app)
}

// Alone runs the example without a launcher, which makes it a world of one rank, and returns what it printed
// and its exit status. No launcher ends the rank while it is still saying what went wrong.
func Alone(t *testing.T, dir string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), self, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
	c.Env = append(os.Environ(), launchertest.Environ(example)...)
	if err := c.Run(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// Refused fails the test unless the example, given the arguments, prints nothing but one line that has all
// the words, and fails.
func Refused(t *testing.T, args []string, words ...string) {
	t.Helper()
	dir := t.TempDir()
	stdout, stderr, status := Alone(t, dir, args...)
	require.Equal(t, 1, status, stderr)
	require.Empty(t, stdout)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	for _, word := range words {
		require.Contains(t, stderr, word)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "files were left behind")
}

// RefusedEach is Refused for each of the arguments, which blanks separate, with what must be said of them.
func RefusedEach(t *testing.T, words map[string]string) {
	t.Helper()
	for args, words := range words {
		t.Run(args, func(t *testing.T) { Refused(t, strings.Fields(args), words) })
	}
}

// Helps fails the test unless -h has one rank of a job tell of a flag, and the job end well.
func Helps(t *testing.T, flag string) {
	t.Helper()
	r := launch(t, 2, t.TempDir(), "-h")
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, 1, strings.Count(r.Out, flag), r.Out)
}

// Ends fails the test unless a job of several ranks ends by itself, as failed, when rank 0 refuses the
// arguments.
func Ends(t *testing.T, ranks int, args ...string) {
	t.Helper()
	r := launch(t, ranks, t.TempDir(), args...)
	f := r.Cause(t)
	require.NotEqual(t, launcher.TimedOut, f.How, r.Err)
	require.Equal(t, 1, f.ExitStatus(), r.Err)
	require.Contains(t, r.Err, f.Error())
}
