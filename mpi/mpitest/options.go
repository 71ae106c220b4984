package mpitest

import (
	"flag"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

var (
	seedFlag = flag.Uint64("mpitest.seed", 1, "`seed` of the network that mpitest.Run simulates")
	runsFlag = flag.Int("mpitest.runs", 1,
		"have mpitest.Run run each job `n` times, with seeds from -mpitest.seed on, until one fails")
)

// Option changes how Run runs a job.
type Option func(*options)

type options struct {
	seed   uint64
	runs   int // with seeds from seed on
	config []mpi.Config
}

// Seed chooses what the simulated network draws: how far messages come before others, where they are cut,
// when sends complete. Without this option the seed is that of -mpitest.seed, 1 by default. Runs of one seed
// still differ in the order in which the Go runtime schedules the ranks.
func Seed(seed uint64) Option { return func(o *options) { o.seed, o.runs = seed, 1 } }

// Config changes settings of all ranks.
func Config(c mpi.Config) Option { return func(o *options) { o.config = append(o.config, c) } }

// Sizes runs body as a job of each of some sizes, in subtests n=1, n=2, ….
func Sizes(t *testing.T, sizes []int, body Body, opts ...Option) {
	t.Helper()
	for _, n := range sizes {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			t.Helper()
			Run(t, n, body, opts...)
		})
	}
}
