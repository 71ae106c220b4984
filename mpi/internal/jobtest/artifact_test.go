package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// jobWith runs a job and returns what it writes to standard error.
func jobWith(t *testing.T, job launcher.Job) (string, error) {
	t.Helper()
	errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer errs.Close()
	job.Stdin, job.Out, job.Err = launcher.InputNone, errs, errs
	failure := launcher.Run(t.Context(), job)
	text, err := os.ReadFile(errs.Name())
	require.NoError(t, err)
	return string(text), failure
}

// A profile of all ranks comes into one file, and a table tells where the program made its calls.
func TestProfileAndReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "heap.pprof")
	out, err := jobWith(t, launcher.Job{Apps: []launcher.App{launchertest.Ranks(2, dupAndFree, "WEFT_PROFILE=heap",
		"WEFT_REPORT=1")}, Report: true, Profile: "heap", ProfileFile: file, Timeout: 2 * time.Minute})
	require.NoError(t, err, out)
	require.Contains(t, out, "weft: the profile of 2 ranks is in "+file+"; go tool pprof shows it\n")
	require.Regexp(t, `(?m)^weft: 0     \w+ +\w+_test\.go:\d+ +[1-9]`, out)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	p, err := profile.ParseData(b)
	require.NoError(t, err)
	require.NotEmpty(t, p.SampleType)
	for _, s := range p.Sample { // there may be none: few allocations are sampled
		require.Contains(t, []string{"0", "1"}, s.Label["rank"][0])
	}
}

// timedOut runs a job with longer and longer timeouts, until its last rank is where it waits when the job ends:
// the launcher says so, and the file with the rank's stacks names frame.
func timedOut(t *testing.T, app launcher.App, says, frame string) {
	t.Helper()
	for timeout := 3 * time.Second; ; timeout *= 2 {
		dir := t.TempDir()
		out, err := jobWith(t, launcher.Job{Apps: []launcher.App{app}, OutputDir: dir, Timeout: timeout,
			Grace: time.Minute})
		require.Error(t, err)
		require.NotContains(t, out, "panic")
		stacks, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rank.%d.stacks", app.Ranks-1)))
		if strings.Contains(ofWorld(out), says) && strings.Contains(string(stacks), frame) {
			return
		}
		require.Less(t, timeout, time.Minute, "%s; stacks: %v: %s", out, err, stacks)
	}
}

// A rank whose Init has failed goes on as it likes, and answers when it is asked what it does.
func TestTimeout_AfterAFailedInit(t *testing.T) {
	t.Parallel()
	timedOut(t, launchertest.Ranks(1, initFails), "weft: rank 0 was", "artifact_test.go:")
}

var initFails = launchertest.Body("goes on after a failed Init", func() error {
	_, err := mpi.Init(context.Background(), mpi.Config{Settings: map[string]string{"WEFT_EAGER_MAX": "much"}})
	if err == nil {
		return errors.New("Init takes any text for a number")
	}
	select {}
})

// A job that takes too long leaves the stacks of its goroutines, and says where each rank was.
func TestTimeout_Stacks(t *testing.T) {
	t.Parallel()
	timedOut(t, launchertest.Ranks(2, waitingBody),
		"weft: rank 1 was waiting, Recv from 0, tag 0, at report_test.go:", "report_test.go:")
}
