// Package exampletest runs an example as users do, with its arguments, output and exit status. The test binary of the example
// plays the ranks itself.
package exampletest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/launcher"
)

// rankVariable has a test binary run the example in place of the tests.
const rankVariable = "EXAMPLE_TEST_RANK"

// environment is what makes a process play a rank. With the race detector a process would sleep for a second before it exits.
func environment() []string {
	return []string{rankVariable + "=1", strings.TrimSpace("GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0")}
}

// patience is how long a job may take on a machine that does much else.
const patience = 2 * time.Minute

// Main is an example's TestMain; program is the example's main.
func Main(m *testing.M, program func()) {
	if os.Getenv(rankVariable) != "" {
		program()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Launch runs the example on a number of ranks, in the folder dir, and returns what it printed and why the job failed.
func Launch(t *testing.T, ranks int, dir string, env []string, args ...string) (stdout, stderr string, failure error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	out, outDone := capture(t, &stdout)
	errs, errDone := capture(t, &stderr)
	failure = launcher.Run(t.Context(), launcher.Job{
		Apps:    []launcher.App{{Ranks: ranks, Program: self, Args: args, Env: append(environment(), env...), Dir: dir}},
		Timeout: patience, Stdin: launcher.InputNone, Out: out, Err: errs,
	})
	out.Close()
	errs.Close()
	<-outDone
	<-errDone
	return stdout, stderr, failure
}

// capture returns a pipe, and a channel that is closed when all that came through the pipe is there.
func capture(t *testing.T, into *string) (*os.File, <-chan struct{}) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.Close()
		b, _ := io.ReadAll(r)
		*into = string(b)
	}()
	return w, done
}

// Alone runs the example without a launcher, which makes it a world of one rank, and returns what it printed and its exit status.
// No launcher ends the rank while it is still saying what went wrong.
func Alone(t *testing.T, dir string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), self, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
	c.Env = append(os.Environ(), environment()...)
	if err := c.Run(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// Refused fails the test unless the example, given the arguments, prints nothing but one line that has all the words, and fails.
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

// Ends fails the test unless a job of several ranks ends by itself, as failed, when rank 0 refuses the arguments.
func Ends(t *testing.T, ranks int, args ...string) {
	t.Helper()
	_, stderr, failure := Launch(t, ranks, t.TempDir(), nil, args...)
	var f *launcher.Failure
	require.ErrorAs(t, failure, &f)
	require.NotEqual(t, launcher.TimedOut, f.How, stderr)
	require.Equal(t, 1, f.ExitStatus(), stderr)
	require.Contains(t, stderr, f.Error())
}
