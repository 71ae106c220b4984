package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// No number is lost, and no key has two slots.
func TestEveryNumberIsCounted(t *testing.T) {
	for _, n := range []int{1, 4} {
		stdout, stderr, err := exampletest.Launch(t, n, t.TempDir())
		require.NoError(t, err, stderr)
		kindsSeen := kinds
		if n == 1 {
			_, err := fmt.Sscanf(stdout, "2000 numbers of %d kinds", &kindsSeen)
			require.NoError(t, err)
			require.InDelta(t, kinds, kindsSeen, 5)
		}
		require.Equal(t, fmt.Sprintf("%d numbers of %d kinds from %d ranks\n", n*numbers, kindsSeen, n), stdout)
	}
}
