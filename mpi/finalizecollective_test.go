package mpi_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// TestFinalize_LeftCollective: a collective that not every rank has called, or that nobody waited for, is no
// send and no receive of the program.
func TestFinalize_LeftCollective(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		for _, name := range []string{leftCollective, unwaitedCollective} {
			r := launch(t, 2, name, fabric)
			require.NotRegexp(t, `messages? from|sends? to|receives? from`, r.Err)
			require.Regexp(t, `rank 0 came to Finalize with (1 collective|4 collectives) never waited for; `, r.Err)
		}
	})
}

var leftCollective = body("left collective", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 0 {
		_, err := mpi.Ibcast(world, make([]int, 3), 0)
		return err
	}
	return nil
})

var unwaitedCollective = body("unwaited collective", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{3, 100_000} {
		if _, err := mpi.Ibcast(world, make([]int, n), 0); err != nil {
			return err
		}
		if _, err := mpi.Iallreduce(world, make([]int, n), make([]int, n), mpi.Sum[int]()); err != nil {
			return err
		}
	}
	return nil
})
