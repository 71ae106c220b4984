package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/perfetto/perfettotest"
)

// Every message between hosts has both ends in the trace, and none comes before it was sent, though the hosts'
// clocks differ by a quarter of an hour from one to the next. On a busy machine they are compared less well: a
// few messages may have no arrow, and weft says so.
func TestHosts_Trace(t *testing.T) {
	c := newCluster(t, 4, "unshare", "-T", "--fork", "--kill-child", "--monotonic", "{host}000")
	name := filepath.Join(c.dir, "job.pftrace")
	j := c.start(2, "--trace", name, c.dir+"/ring")
	require.Zero(t, j.wait(), j.err.String())
	require.Contains(t, j.err.String(), "the trace of 8 ranks is in "+name)
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	trace := perfettotest.Check(t, f)
	require.Len(t, trace.Sequences, 8)
	sent := trace.Count(perfetto.Instant, "send")
	require.GreaterOrEqual(t, sent, 8)
	require.Equal(t, sent, trace.Count(perfetto.Instant, "receive"))
	if without := sent - trace.Arrows; without != 0 {
		require.Less(t, without, sent/4)
		require.Contains(t, j.err.String(), fmt.Sprintf("%d ends of messages without an arrow", 2*without))
	}
}
