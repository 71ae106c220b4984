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
	for _, ranks := range exampletest.Ranks() {
		stdout, stderr, err := exampletest.Launch(t, ranks, t.TempDir())
		require.NoError(t, err, stderr)
		var want []string
		for rank := range ranks {
			want = append(want, fmt.Sprintf("rank %d of %d has the token from rank %d", rank, ranks,
				(rank+ranks-1)%ranks))
		}
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		slices.Sort(lines)
		require.Equal(t, want, lines)
	}
}
