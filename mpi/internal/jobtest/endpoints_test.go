package jobtest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/tracereport"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// endpointsStuck exchanges a message on an endpoint of its own, and then waits for ever there.
var endpointsStuck = worldBody("stuck on another endpoint", func(_ context.Context, world *mpi.Comm) error {
	rows, err := world.Dup(mpi.OnEndpoint(2))
	if err != nil {
		return err
	}
	rows.SetName("rows")
	peer := 1 - rows.Rank()
	if rows.Rank() == 0 {
		err = sendOne(rows, peer, 77)
	} else {
		err = recvOne(rows, peer, 77)
	}
	if err != nil {
		return err
	}
	return recvOne(rows, peer, 78)
})

// A job that hangs on another endpoint than the world's says so in its report, in the latest events of its ranks,
// and in its trace.
func TestEndpoints_AreShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	report, err := os.Create(filepath.Join(dir, "report"))
	require.NoError(t, err)
	defer report.Close()
	err = launcher.Run(t.Context(), launcher.Job{
		Apps: []launcher.App{launchertest.Ranks(2, endpointsStuck, "WEFT_ENDPOINTS=3",
			"WEFT_TRACE=1M")},
		Timeout: 2 * time.Minute, Stuck: time.Minute, StuckAction: launcher.AbortStuck, OutputDir: dir,
		Trace: filepath.Join(dir, "trace"), Stdin: launcher.InputNone, Out: report, Err: report})
	require.Error(t, err)
	text, err := os.ReadFile(report.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "rank 0 waits in Recv from 1, tag 78, on rows@2, at deadlock_test.go:")

	merged := mergedEvents(t, dir)
	for _, event := range []string{`0 [ ~] endpoint 2: sent to 1, tag 77, 8 bytes, communicator 0\n`,
		`1 [ ~] endpoint 2: receive waits from 0, tag 78, 8 bytes, communicator 0\n`, `1 [ ~] endpoint 2: sleeps\n`,
		`0 [ ~] endpoint 0: connected to 1\n`} {
		require.Regexp(t, event, merged)
	}

	f, err := os.Open(filepath.Join(dir, "trace"))
	require.NoError(t, err)
	defer f.Close()
	job, err := tracereport.Read(f)
	require.NoError(t, err)
	require.Equal(t, tracereport.Messages{Count: 1, Bytes: 8}, job.Endpoints[2])
	require.Zero(t, job.Endpoints[1].Count)
	require.NotZero(t, job.Endpoints[0].Count) // of the Dup
}
