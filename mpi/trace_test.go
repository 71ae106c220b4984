package mpi_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/perfetto/perfettotest"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// tracedBody has messages of all kinds: small and large, expected and not, of one element and of several, to
// itself, coalesced, of collectives, and taken by a matched probe.
var tracedBody = body("a job that is traced", func(ctx context.Context, c *mpi.Comm) error {
	defer mpi.Region(ctx, "everything")()
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for round := range 20 {
		end := mpi.Region(ctx, "exchange")
		for _, n := range []int{0, 8, 3000, 200_000} {
			in := make([]byte, n)
			if _, err := mpi.Sendrecv(c, make([]byte, n), next, round, in, before, round); err != nil {
				return err
			}
		}
		end()
		var all []mpi.Request
		for range 10 { // one after the other: they share writes
			r, err := mpi.Isend(c, []byte{1, 2, 3}, next, 1000)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		for range 9 { // they have come before their receives
			if _, err := mpi.Recv(c, make([]byte, 3), mpi.AnySource, 1000); err != nil {
				return err
			}
		}
		m, _, err := mpi.Mprobe(c, before, mpi.AnyTag)
		if err != nil {
			return err
		}
		if _, err := mpi.Mrecv(&m, make([]byte, 3)); err != nil {
			return err
		}
		if err := mpi.Waitall(all); err != nil {
			return err
		}
		if err := mpi.Send(c, []byte{1}, c.Rank(), 7); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, make([]byte, 1), c.Rank(), 7); err != nil {
			return err
		}
	}
	return nil
})

// tracedJob runs a job with a trace, and returns what is in the file.
func tracedJob(t *testing.T, ranks int, body, fabric string, settings ...string) *perfettotest.Trace {
	name := filepath.Join(t.TempDir(), "job.pftrace")
	settings = append(settings, "WEFT_FABRIC="+fabric)
	err := launcher.Run(t.Context(), launcher.Job{
		Apps:    []launcher.App{launchertest.Ranks(ranks, body, append([]string{"WEFT_TRACE=4M"}, settings...)...)},
		Timeout: time.Minute, Trace: name, Stdin: launcher.InputNone, Out: os.Stderr, Err: os.Stderr})
	require.NoError(t, err)
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	return perfettotest.Check(t, f)
}

func TestTrace_HasEveryMessageAtBothEnds(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			trace := tracedJob(t, 3, tracedBody, fabric)
			require.Equal(t, trace.Arrows, trace.Count(perfetto.Instant, "send"))
			require.Equal(t, trace.Arrows, trace.Count(perfetto.Instant, "receive"))
			require.GreaterOrEqual(t, trace.Arrows, 3*20*15)
			require.Equal(t, 3, trace.Count(perfetto.SliceBegin, "everything"))
			require.Equal(t, 3*20, trace.Count(perfetto.SliceBegin, "exchange"))
			require.Equal(t, 3*20, trace.Count(perfetto.SliceBegin, "Barrier"))
			for _, e := range trace.Events {
				if len(e.Flows) > 0 {
					require.Contains(t, e.Notes, "peer")
					require.Contains(t, e.Notes, "bytes")
					require.Equal(t, "world", e.Notes["communicator"].Text[:5])
				}
			}
		})
	}
}

// What has no room is left out, and the file says so; what is there is right.
func TestTrace_ThatIsTooLong(t *testing.T) {
	trace := tracedJob(t, 2, tracedBody, "tcp", "WEFT_TRACE=20000")
	require.Positive(t, trace.Arrows)
	said := 0
	for _, e := range trace.Events {
		if strings.HasSuffix(e.Name, "events after this are left out") {
			said++
		}
	}
	require.Equal(t, 2, said)
}
