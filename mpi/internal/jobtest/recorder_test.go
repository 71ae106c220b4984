package jobtest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var killedEventsBody = worldBody("killed after a message", func(_ context.Context, c *mpi.Comm) error {
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	// Rank 0 records a send after it: the second one shows that the first is recorded.
	for _, tag := range []int{77, 79} {
		if c.Rank() == 0 {
			if err := mpi.Send(c, []int64{1, 2}, 1, tag); err != nil {
				return err
			}
		} else if _, err := mpi.Recv(c, make([]int64, 2), 0, tag); err != nil {
			return err
		}
	}
	if c.Rank() == 1 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return recvOne(c, 1, 78)
})

// mergedEvents returns the latest events that a job of two ranks has left in a folder, in the order of time.
func mergedEvents(t *testing.T, dir string) string {
	var dumps []*recorder.Record
	for _, name := range []string{"rank.0.events", "rank.1.events"} {
		f, err := os.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		d, err := recorder.Parse(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		dumps = append(dumps, d)
	}
	var all strings.Builder
	require.NoError(t, recorder.Merge(&all, dumps))
	return all.String()
}

// The latest events of every rank are kept, also those of a rank that had no time to write anything.
func TestRecorder_KeepsWhatAKilledRankDid(t *testing.T) {
	dir := t.TempDir()
	err := launcher.Run(t.Context(), launcher.Job{Apps: []launcher.App{launchertest.Ranks(2, killedEventsBody)},
		Timeout: time.Minute, OutputDir: dir, Stdin: launcher.InputNone})
	require.Error(t, err)
	all := mergedEvents(t, dir)
	for _, text := range []string{"begins Barrier, 0 bytes, communicator 0",
		"sent to 1, tag 77, 16 bytes, communicator 0", "from 0, tag 77, 16 bytes, communicator 0"} {
		require.Contains(t, all, text)
	}
}

// A job that ends well leaves no events.
func TestRecorder_KeepsNothingOfASuccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := launcher.Run(t.Context(), launcher.Job{
		Apps:    []launcher.App{launchertest.Ranks(2, slowBodies[2])},
		Timeout: time.Minute, OutputDir: dir, Stdin: launcher.InputNone})
	require.NoError(t, err)
	names, err := filepath.Glob(filepath.Join(dir, "*.events"))
	require.NoError(t, err)
	require.Empty(t, names)
}
