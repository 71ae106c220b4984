package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestEveryRankSaysHello(t *testing.T) {
	stdout, stderr, err := exampletest.Launch(t, 3, t.TempDir())
	require.NoError(t, err, stderr)
	for rank := range 3 {
		require.Contains(t, stdout, fmt.Sprintf("hello from rank %d of 3\n", rank))
	}
}
