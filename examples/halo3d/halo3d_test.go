package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestGhosts(t *testing.T) {
	for _, n := range []int{1, 2, 8} { // the last has neighbors in all dimensions
		stdout, stderr, err := exampletest.Launch(t, n, t.TempDir())
		require.NoError(t, err, stderr)
		require.Contains(t, stdout, "blocks are as they must be\n")
	}
}
