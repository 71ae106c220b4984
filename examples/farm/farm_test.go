package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// Every task is done once, whoever does it, with one endpoint and with several.
func TestPrimesAreCounted(t *testing.T) {
	for _, job := range []struct {
		ranks      int
		goroutines string
		endpoints  int
	}{{1, "1 goroutine", 1}, {2, "4 goroutines", 1}, {3, "8 goroutines", 4}, {4, "12 goroutines", 2}} {
		t.Run(fmt.Sprintf("%+v", job), func(t *testing.T) {
			t.Setenv("WEFT_ENDPOINTS", fmt.Sprint(job.endpoints))
			stdout, stderr, err := exampletest.Launch(t, job.ranks, t.TempDir())
			require.NoError(t, err, stderr)
			require.Equal(t, fmt.Sprintf("9592 primes below 100000, counted by %s\n", job.goroutines),
				stdout)
		})
	}
}
