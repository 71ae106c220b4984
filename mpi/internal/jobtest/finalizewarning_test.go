package jobtest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// TestFinalize_Leftovers: what a program has left over is told once, by peer and tag, and keeps nobody from
// ending.
func TestFinalize_Leftovers(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launch(t, 2, leftoverBody, fabric)
		require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
		require.Contains(t, r.Err,
			"weft: warning: rank 1 came to Finalize with 3 messages from rank 0 with tag 7 never received, "+
				"1 message from rank 0 with tag 8 never received, 2 receives from any rank with tag 9 never waited for; "+
				"WEFT_CHECK=1 names the lines\n")
		require.Contains(t, r.Err,
			"weft: warning: rank 0 came to Finalize with 1 send to rank 1 with tag 8 never waited for; "+
				"WEFT_CHECK=1 names the lines\n")
	})
}

// TestFinalize_BcastsOfOneRank: messages of a collective that nobody has received are told, by their sender. (If
// both ranks are roots, a rank whose peer is quicker gets an error instead.)
func TestFinalize_BcastsOfOneRank(t *testing.T) {
	r := launch(t, 2, bcastsOfOneRank)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
	require.Contains(t, r.Err, "weft: warning: rank 1 came to Finalize with 2 messages of a collective from rank 0 "+
		"never received; WEFT_CHECK=1 ")
}

var bcastsOfOneRank = body("bcasts of one rank", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 0 {
		for range 2 {
			if err := mpi.Bcast(world, []int{1}, 0); err != nil {
				return err
			}
		}
	}
	return nil
})

// TestFinalize_NothingLeftOver: there is no warning for a program that is right.
func TestFinalize_NothingLeftOver(t *testing.T) {
	r := launch(t, 2, tidyBody)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
	require.NotContains(t, r.Err, "Finalize")
}

var leftoverBody = body("leftover", func(_ context.Context, world *mpi.Comm) error {
	buf := make([]byte, 100_000)
	if world.Rank() == 0 {
		for range 3 {
			if err := mpi.Send(world, buf[:10], 1, 7); err != nil {
				return err
			}
		}
		_, err := mpi.Isend(world, buf, 1, 8) // announced
		return err
	}
	for i := range 2 {
		if _, err := mpi.Irecv(world, buf[i:][:1], mpi.AnySource, 9); err != nil {
			return err
		}
	}
	return nil
})

var tidyBody = body("tidy", func(_ context.Context, world *mpi.Comm) error {
	buf := make([]byte, 100_000)
	other := 1 - world.Rank()
	r, err := mpi.Irecv(world, buf, other, 1)
	if err != nil {
		return err
	}
	if err := mpi.Send(world, make([]byte, 100_000), other, 1); err != nil {
		return err
	}
	_, err = r.Wait()
	return firstError(err, mpi.Barrier(world))
})
