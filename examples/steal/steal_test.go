package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// Each task is done once, whoever does it.
func TestEveryTaskIsDoneOnce(t *testing.T) {
	for _, n := range []int{1, 4} {
		stdout, stderr, err := exampletest.Launch(t, n, t.TempDir())
		require.NoError(t, err, stderr)
		sum := int64(0)
		for owner := range n {
			for task := range int64(tasks) {
				sum += steps(task+1, 100*(owner+1))
			}
		}
		require.Contains(t, stdout, fmt.Sprintf("%d tasks, %d steps\n", n*tasks, sum))
	}
}
