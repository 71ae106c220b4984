package bench

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// initialization is measured by Run, around Init.
func initialization(*session) error { return nil }

// initTook prints what Init has taken.
func (s *session) initTook(ms float64) error {
	if err := mpi.Barrier(s.world); err != nil {
		return err
	}
	c, err := s.spread(ms)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "nprocs: %d, min: %.0f ms, max: %.0f ms, avg: %.0f ms\n", s.world.Size(), c.min, c.max, c.value)
	return nil
}
