package launchertest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
)

var waiting = Body("waiting", func() error {
	time.Sleep(time.Hour)
	return nil
})

func TestRun_TellsWhereRanksAreThatDoNotEnd(t *testing.T) {
	r := run(t, launcher.Job{Apps: []launcher.App{Ranks(2, waiting)}, Timeout: 6 * time.Second})
	require.Error(t, r.Failure)
	require.Contains(t, r.Err, "hang_test.go", "where a rank is")
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
