package launchertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
)

var waiting = Body("waiting", func() error {
	time.Sleep(time.Hour)
	return nil
})

// overVariable names a file that is there when the job beside this one has ended.
const overVariable = "LAUNCHERTEST_OVER"

var beside = Body("beside", func() error {
	for {
		if _, err := os.Stat(os.Getenv(overVariable)); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
})

// The ranks of a job that does not end show where they are; those of a job beside it are left in peace.
func TestRun_TellsWhereRanksAreThatDoNotEnd(t *testing.T) {
	over := filepath.Join(t.TempDir(), "over")
	other := make(chan Result)
	go func() { other <- Run(t, Ranks(1, beside, overVariable+"="+over)) }()
	for timeout := 3 * time.Second; ; timeout *= 2 { // until the ranks have begun by then
		r := run(t, launcher.Job{Apps: []launcher.App{Ranks(2, waiting)}, Timeout: timeout})
		require.Error(t, r.Failure)
		if strings.Contains(r.Err, "hang_test.go") { // where a rank is
			break
		}
		require.Less(t, timeout, time.Minute, r.Err)
	}
	require.NoError(t, os.WriteFile(over, nil, 0o600))
	o := <-other
	require.NoError(t, o.Failure, o.Err)
}

func TestStanding_ShowsTheProcessesOfThisOneAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), Environ(waiting)...)
	require.NoError(t, cmd.Start())
	line := fmt.Sprintf("child %d (", cmd.Process.Pid)
	require.Contains(t, standing(), line)
	require.NotContains(t, standing(), fmt.Sprintf("child %d (", os.Getpid()))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NotContains(t, standing(), line)
}
