package mpi_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// A call through a handle with a context fails like any other if the ranks' calls differ. It neither succeeds
// nor waits for the end of the context, and ends no other call through the handle.
func TestChecking_WithContext(t *testing.T) {
	for name, differs := range map[string]func(c *mpi.Comm, r int) error{
		"nonblocking": func(c *mpi.Comm, r int) error { return wait(mpi.Ibcast(c, ints(1), 1-r)) },
		"persistent": func(c *mpi.Comm, r int) error {
			p, err := mpi.BcastInit(c, ints(1), 1-r)
			if err != nil {
				return err
			}
			return firstError(wait(p.Start()), p.Free())
		},
	} {
		t.Run(name, func(t *testing.T) {
			var results [2]error
			err := mpitest.Try(t, 2, func(ctx context.Context, world *mpi.Comm) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				c, r := world.WithContext(ctx), world.Rank()
				results[r] = differs(c, r)
				if err := mpi.Barrier(c); err != nil {
					return fmt.Errorf("a later call: %w", err)
				}
				return nil
			})
			require.ErrorContains(t, err, "different root")
			require.NotContains(t, err.Error(), "a later call")
			for _, err := range results {
				require.ErrorIs(t, err, mpi.ErrCollective)
			}
		})
	}
}
