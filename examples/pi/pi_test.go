package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// The midpoint rule with n intervals is wrong by 1/12n² for this curve, and a term of the sixth order.
func TestPiIsWrongByWhatTheRuleSays(t *testing.T) {
	for _, job := range []struct{ ranks, intervals int }{{1, 1000}, {4, 1000}, {3, 100}, {4, 10}} {
		t.Run(fmt.Sprintf("%+v", job), func(t *testing.T) {
			stdout, stderr, err := exampletest.Launch(t, job.ranks, t.TempDir(), "-intervals",
				fmt.Sprint(job.intervals))
			require.NoError(t, err, stderr)
			var value, wrong float64
			var intervals, ranks int
			_, err = fmt.Sscanf(stdout, "pi = %f from %d intervals on %d ranks, wrong by %g\n", &value,
				&intervals, &ranks, &wrong)
			require.NoError(t, err, stdout)
			require.Equal(t, []int{job.intervals, job.ranks}, []int{intervals, ranks})
			expected := 1 / (12 * math.Pow(float64(job.intervals), 2))
			require.InDelta(t, math.Pi+expected, value, expected/1000)
			require.InDelta(t, expected, wrong, expected/100)
			require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
		})
	}
}

func TestMoreRanksThanIntervals(t *testing.T) {
	sum := 0.0
	for rank := range 5 {
		sum += part(2, rank, 5)
	}
	require.InDelta(t, part(2, 0, 1), sum, 1e-15)
	require.Zero(t, part(2, 4, 5))
}

func TestBadFlagsAreRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-n 1":            "pi: flag provided but not defined: -n",
		"-intervals many": `pi: invalid value "many" for flag -intervals`,
		"-intervals 0":    "pi: -intervals 0: must be from 1 to",
		"-intervals " + fmt.Sprint(math.MaxInt64): fmt.Sprintf("must be from 1 to %d", int64(maxIntervals)),
		"10": `pi: "10" is not a flag; -h lists them`,
	})
}

func TestABadFlagEndsTheJob(t *testing.T) { exampletest.Ends(t, 3, "-intervals", "0") }

func TestHelp(t *testing.T) { exampletest.Helps(t, "-intervals int") }
