package mpitest

import (
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// Option changes how Run runs a job.
type Option func(*options)

type options struct {
	seed   uint64
	config []mpi.Config
}

// Seed chooses what the simulated network draws: how far messages come before others, where they are cut, when
// sends complete. The seed is 1 without this option. Runs of one seed still differ in the order in which the
// Go runtime schedules the ranks.
func Seed(seed uint64) Option { return func(o *options) { o.seed = seed } }

// Config changes settings of all ranks.
func Config(c mpi.Config) Option { return func(o *options) { o.config = append(o.config, c) } }

// Sizes runs body as a job of each of some sizes, in subtests n=1, n=2, ….
func Sizes(t *testing.T, sizes []int, body Body, opts ...Option) {
	t.Helper()
	for _, n := range sizes {
		t.Run(name(n), func(t *testing.T) {
			t.Helper()
			Run(t, n, body, opts...)
		})
	}
}
