package mpi

import "github.com/weft-mpi/weft/mpi/internal/engine"

// Stats are a rank's counters since Init.
type Stats = engine.Stats

// Stats returns the counters of this rank, for all communicators together.
func (c *Comm) Stats() Stats {
	if c.check() != nil {
		return Stats{}
	}
	return c.e.Stats()
}
