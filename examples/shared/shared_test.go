package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestEveryRankSeesTheWholeTable(t *testing.T) {
	for _, n := range []int{1, 4} {
		stdout, stderr, err := exampletest.Launch(t, n, t.TempDir())
		require.NoError(t, err, stderr)
		for rank := range n {
			require.Contains(t, stdout, fmt.Sprintf("rank %d: 9592 primes below 100000\n", rank))
		}
	}
}
