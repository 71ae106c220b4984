package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestEveryRankHasTheToken(t *testing.T) {
	for _, job := range []struct {
		ranks, laps, size int
	}{{1, 3, 8}, {2, 1, 1}, {4, 3, 0}, {4, 5, 100_000}} {
		t.Run(fmt.Sprintf("%+v", job), func(t *testing.T) {
			stdout, stderr, err := exampletest.Launch(t, job.ranks, t.TempDir(), "-n", fmt.Sprint(job.laps),
				"-size", fmt.Sprint(job.size))
			require.NoError(t, err, stderr)
			lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			require.Len(t, lines, job.ranks+1, stdout)
			for rank := range job.ranks {
				require.Contains(t, lines, fmt.Sprintf("rank %d of %d has the token from rank %d", rank,
					job.ranks, (rank+job.ranks-1)%job.ranks))
			}
			require.True(t, slices.ContainsFunc(lines, func(line string) bool {
				return strings.HasPrefix(line, fmt.Sprintf("%d passes of %d bytes, each as it must be, in ",
					job.ranks*job.laps, 8*job.size))
			}), stdout)
		})
	}
}

func TestTheTokenIsChecked(t *testing.T) {
	token := make([]int64, 5)
	fill(token, 7)
	require.NoError(t, check(1, token, 5, 7))
	require.EqualError(t, check(1, token, 5, 8), "rank 1: pass 8: number 0 of the token is 7 instead of 8")
	require.EqualError(t, check(1, token[:4], 5, 7), "rank 1: pass 7: the token has 4 numbers instead of 5")
	token[3]++
	require.EqualError(t, check(1, token, 5, 7), "rank 1: pass 7: number 3 of the token is 11 instead of 10")
}

func TestBadFlagsAreRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-laps 1":  "ring: flag provided but not defined: -laps",
		"-n x":     `ring: invalid value "x" for flag -n`,
		"-n 0":     "ring: -n 0: must be 1 or more",
		"-size -1": "ring: -size -1: must be from 0 to",
		"-size " + fmt.Sprint(maxSize+1): fmt.Sprintf("ring: -size %d: must be from 0 to %d", maxSize+1,
			maxSize),
		"7": `ring: "7" is not a flag; -h lists them`,
	})
}

func TestABadFlagEndsTheJob(t *testing.T) { exampletest.Ends(t, 4, "-n", "0") }

func TestHelp(t *testing.T) { exampletest.Helps(t, "-size int") }
