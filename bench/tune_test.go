package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/internal/tuning"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// A rule holds up to the next size and the next number of ranks that were measured, and joins the one before.
func TestRulesOfATable(t *testing.T) {
	point := func(name string, ranks, bytes int, chosen, best string) tunePoint {
		return tunePoint{tuned: tuned{name: name}, ranks: ranks, bytes: bytes, chosen: chosen, best: best}
	}
	points := []tunePoint{
		point("Bcast", 2, 8, "direct", "direct"),
		point("Bcast", 2, 64, "direct", "binomial"),
		point("Bcast", 2, 512, "direct", "binomial"),
		point("Bcast", 2, 4096, "pull", "k-nomial"),
		point("Bcast", 4, 8, "direct", "binomial"),
		point("Bcast", 4, 64, "direct", "direct"),
		point("Bcast", 4, 512, "direct", "direct"),
		point("Bcast", 4, 4096, "direct", "binomial"),
		point("Barrier", 4, 0, "direct", "linear"),
	}
	require.Equal(t, []tuning.Rule{
		{Operation: "Bcast", Algorithm: "binomial", MinRanks: 2, MaxRanks: 3, MinBytes: 64, MaxBytes: 4095},
		{Operation: "Bcast", Algorithm: "k-nomial", MinRanks: 2, MaxRanks: 3, MinBytes: 4096},
		{Operation: "Bcast", Algorithm: "binomial", MinRanks: 4, MinBytes: 8, MaxBytes: 63},
		{Operation: "Bcast", Algorithm: "binomial", MinRanks: 4, MinBytes: 4096},
		{Operation: "Barrier", Algorithm: "linear", MinRanks: 4},
	}, rulesOf(points))
	require.Empty(t, rulesOf(nil))
}

// briefly are options for a run that takes no time.
func briefly(table string) TuneOptions {
	o := DefaultTune
	o.Min, o.Max, o.Limit, o.Table = 8, 4096, 200*time.Millisecond, table
	return o
}

var tuneBody = launchertest.Body("tune", func() error {
	o := briefly(os.Getenv("WEFT_TEST_TABLE"))
	o.All = true
	return Tune(context.Background(), o, Invocation{}, os.Stdout)
})

var tunedBody = worldBody("tuned", func(world *mpi.Comm) error {
	return mpi.Allreduce(world, []float32{1}, make([]float32, 1), mpi.Sum[float32]())
})

// Every algorithm of every collective is measured, on communicators of 2 and 3 ranks, and package mpi reads
// the table that comes of it.
func TestTune(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			table := filepath.Join(t.TempDir(), "coll.json")
			ranks := launchertest.Ranks(3, tuneBody, "WEFT_LOG=error", "WEFT_FABRIC="+fabric,
				"WEFT_TEST_TABLE="+table)
			r := launchertest.Run(t, ranks)
			require.NoError(t, r.Failure, r.Err)
			for _, says := range []string{"weft tune, 3 ranks, fabric " + fabric, "\n#Allreduce ",
				" rabenseifner ", " pipelined-chain ", " within 10 % of the best at ",
				"# Send is left out: "} {
				require.Contains(t, r.Out, says)
			}
			for _, c := range tunable {
				for _, n := range []int{2, 3} {
					require.Contains(t, r.Out, fmt.Sprintf("\n%-20s%7d", c.name, n))
				}
			}
			text, err := os.ReadFile(table)
			require.NoError(t, err)
			var rules []tuning.Rule
			require.NoError(t, json.Unmarshal(text, &rules))
			r = launchertest.Run(t, launchertest.Ranks(3, tunedBody, "WEFT_LOG=error", "WEFT_COLL="+table))
			require.NoError(t, r.Failure, r.Err)
		})
	}
}

var messagesAlone = launchertest.Body("messages alone", func() error {
	o := briefly("")
	o.Collectives = []string{"Send"}
	return Tune(context.Background(), o, Invocation{}, os.Stdout)
})

func TestTune_NothingButMessagesUnderALauncher(t *testing.T) {
	r := launchertest.Launch(t, 2, messagesAlone, "WEFT_LOG=error")
	requireStatus(t, r, 1)
	require.Contains(t, r.Err, "Send is left out: ")
}

var consistencyBody = launchertest.Body("consistency", func() error {
	o := briefly("")
	o.Ranks = []int{2, 3}
	err := Consistency(context.Background(), o, Invocation{}, os.Stdout)
	if errors.Is(err, ErrInconsistent) { // in no time anything can be found
		err = nil
	}
	return err
})

func TestConsistency(t *testing.T) {
	r := launchertest.Run(t, launchertest.Ranks(4, consistencyBody, "WEFT_LOG=error"))
	require.NoError(t, r.Failure, r.Err)
	for _, says := range []string{"Barrier, Allreduce of 8 bytes", "Allreduce, Reduce and Bcast",
		"Allgather, Gather and Bcast of all", "Alltoall, one element less",
		"Allreduce of one rank more, and without it"} {
		require.Contains(t, r.Out, says)
	}
	require.Equal(t, 2, strings.Count(r.Out, "Barrier, Allreduce"), r.Out) // on 2 ranks and on 3
}

func TestTuneRefusesWhatMakesNoSense(t *testing.T) {
	for _, x := range []struct {
		o    TuneOptions
		says string
	}{
		{TuneOptions{Min: 8, Max: 4}, "sizes from 8 to 4"},
		{TuneOptions{Min: 8, Max: 8, Collectives: []string{"Bcats"}}, `"Bcats" has no choice that could be tuned; these have: Send, Barrier, Bcast, `},
		{TuneOptions{Min: 8, Max: 8, Ranks: []int{2, 5}}, "2 to 4 are possible"},
		{TuneOptions{Min: 8, Max: 8, Ranks: []int{1}}, "2 to 4 are possible"},
	} {
		require.ErrorContains(t, x.o.Check(4), x.says)
	}
	require.ErrorContains(t, new(TuneOptions).Check(1), "at least 2 ranks")
}

func TestGuideline(t *testing.T) {
	require.True(t, weight{left: 11, right: 10}.holds(1.1))
	require.False(t, weight{left: 12, right: 10}.holds(1.1))
	require.True(t, weight{left: 12, right: 10, barrier: 20}.holds(1.1), "within the spread of the Barriers")
	require.False(t, weight{left: 12.5, right: 10, barrier: 20}.holds(1.1))
	processors := topology.Possible()
	require.Equal(t, 2.0, busier(processors))
	require.Equal(t, 1.5, busier(2*processors))
}
