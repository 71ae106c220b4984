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

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/internal/tuning"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// A rule holds up to the next size and the next number of ranks that were measured, and joins the one before.
func TestRulesOfATable(t *testing.T) {
	point := func(name string, ranks, bytes int, chosen, best string) tunePoint {
		p := tunePoint{tuned: tuned{name: name}, ranks: ranks, bytes: bytes, chosen: chosen, best: best}
		if best != chosen {
			p.standing = slower
		}
		return p
	}
	noise := point("Barrier", 8, 0, "direct", "linear")
	noise.standing = unclear
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
		noise,
		point(messageName, 2, 8, "ring", "one copy"),
	}
	require.Equal(t, []tuning.Rule{
		{Operation: "Bcast", Algorithm: "binomial", MinRanks: 2, MaxRanks: 3, MinBytes: 64, MaxBytes: 4095},
		{Operation: "Bcast", Algorithm: "k-nomial", MinRanks: 2, MaxRanks: 3, MinBytes: 4096},
		{Operation: "Bcast", Algorithm: "binomial", MinRanks: 4, MaxRanks: 7, MinBytes: 8, MaxBytes: 63},
		{Operation: "Bcast", Algorithm: "binomial", MinRanks: 4, MaxRanks: 7, MinBytes: 4096},
		{Operation: "Barrier", Algorithm: "linear", MinRanks: 4, MaxRanks: 7},
	}, rulesOf(points))
	require.Empty(t, rulesOf(nil))
}

// briefly are options for a run that takes no time.
func briefly(table string) TuneOptions {
	o := DefaultTune
	o.Min, o.Max, o.MaxMessage, o.Limit, o.Table = 4096, 4096, 64<<10, 100*time.Millisecond, table
	return o
}

var tuneBody = launchertest.Body("tune", func() error {
	o := briefly(os.Getenv("WEFT_TEST_TABLE"))
	o.All = true
	if names := os.Getenv("WEFT_TEST_COLLECTIVES"); names != "" {
		o.Collectives = strings.Split(names, ",")
	}
	return Tune(context.Background(), o, Invocation{}, os.Stdout)
})

var tunedBody = worldBody("tuned", func(world *mpi.Comm) error {
	return mpi.Allreduce(world, []float32{1}, make([]float32, 1), mpi.Sum[float32]())
})

// Every algorithm of every collective is measured, on communicators of 2 and 3 ranks, and package mpi reads
// the table that comes of it. Over TCP, where the same goes more slowly, some are.
func TestTune(t *testing.T) {
	testlength.NotInShort(t)
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			table := filepath.Join(t.TempDir(), "coll.json")
			o := TuneOptions{}
			if fabric == "tcp" {
				o.Collectives = []string{messageName, "Bcast", "Allreduce"}
			}
			ranks := launchertest.Ranks(3, tuneBody, "WEFT_LOG=error", "WEFT_FABRIC="+fabric,
				"WEFT_TEST_TABLE="+table, "WEFT_TEST_COLLECTIVES="+strings.Join(o.Collectives, ","))
			r := launchertest.Run(t, ranks)
			require.NoError(t, r.Failure, r.Err)
			for _, says := range []string{"weft tune, 3 ranks, fabric " + fabric, "\n#Allreduce ",
				" rabenseifner ", " pipelined-chain ", " within 10 % of the best at ", "\nSend "} {
				require.Contains(t, r.Out, says)
			}
			for _, c := range o.wanted() {
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

// Each judgement: rounds of the choice and of another way, of which both vary by a common factor.
func TestTune_Standing(t *testing.T) {
	for _, c := range []struct {
		name   string
		ratios []float64 // of the choice and the best way, in each round
		want   standing
		best   string
	}{
		{"within the margin", []float64{1.09, 1.08, 1.07, 1.06, 1.05, 1.04, 1.3, 1.3, 1.3}, within, "direct"},
		{"a median beyond it by chance", []float64{1, 1, 1.05, 1.2, 1.2, 1.2, 1.3, 1.3, 1.3}, unclear, "binomial"},
		{"beyond it but for one round", []float64{1, 1.2, 1.2, 1.2, 1.2, 1.2, 1.3, 1.3, 1.3}, slower, "binomial"},
		{"slower in no round", []float64{.5, .5, .5, .5, .5, .5, .5, .5, .5}, within, "direct"},
	} {
		auto, other := &contender{}, &contender{name: "binomial"}
		for i, r := range c.ratios {
			moved := 1 + 3*float64(i%2) // a host that moves the cores
			auto.times, other.times = append(auto.times, r*moved), append(other.times, moved)
		}
		worse := &contender{name: "linear", times: []float64{9, 9}} // not measured again
		same := &contender{name: "direct", times: auto.times[:3]}
		p := tunePoint{chosen: "direct"}
		p.judge([]*contender{auto, worse, other, same})
		require.Equal(t, c.want, p.standing, c.name)
		require.Equal(t, c.best, p.best, c.name)
		require.InDelta(t, max(1, median(c.ratios)), max(1, p.gain), 0.1, c.name)
	}
	for n, want := range map[int]int{1: 0, 5: 0, 6: 0, 9: 1, 15: 3, 25: 7} {
		require.Equal(t, want, leftOut(n), n)
	}
}

var consistencyBody = launchertest.Body("consistency", func() error {
	o := briefly("")
	o.Min, o.Ranks = 1024, []int{2, 3} // of all sizes, some whose blocks of 3 ranks are longer than Max together
	err := Consistency(context.Background(), o, Invocation{}, os.Stdout)
	if errors.Is(err, ErrInconsistent) { // in no time anything can be found
		err = nil
	}
	return err
})

func TestConsistency(t *testing.T) {
	testlength.NotInShort(t)
	r := launchertest.Run(t, launchertest.Ranks(3, consistencyBody, "WEFT_LOG=error"))
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
