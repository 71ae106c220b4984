package jobtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var loggingBody = body("logs with rank and host", func(_ context.Context, c *mpi.Comm) error {
	slog.New(slog.NewTextHandler(os.Stdout, nil)).Info("hello", "mpi", c, "none", (*mpi.Comm)(nil))
	return nil
})

// Rank and host are in what the program logs of a communicator, and in what weft logs.
func TestLogs_HaveRankAndHost(t *testing.T) {
	r := launchertest.Run(t, launchertest.Ranks(2, loggingBody, "WEFT_LOG=debug"))
	require.NoError(t, r.Failure, r.Err)
	host, err := os.Hostname()
	require.NoError(t, err)
	for rank := range 2 {
		require.Contains(t, r.Out, fmt.Sprintf("mpi.comm=world mpi.rank=%d mpi.size=2 mpi.host=%s none=", rank, host))
		require.Contains(t, r.Err, fmt.Sprintf("msg=\"joined the job\" rank=%d host=%s size=2", rank, host))
	}
	for line := range strings.Lines(r.Err) {
		if strings.Contains(line, "level=DEBUG") {
			require.Equal(t, 1, strings.Count(line, " rank="), line)
		}
	}
}
