package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var (
	exitsInFinalize = launchertest.Body("exits while the others are in Finalize", func() error {
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			if err := mpi.Barrier(world); err != nil {
				return err
			}
			if world.Rank() == 2 {
				os.Exit(5)
			}
			return nil
		})
	})
	allFail = launchertest.Body("all ranks fail", func() error {
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			if err := mpi.Barrier(world); err != nil {
				return err
			}
			return fmt.Errorf("rank %d: the matrix is singular%s", world.Rank(), strings.Repeat(".", 3000))
		})
	})
	allFailAlike = launchertest.Body("all ranks fail with the same error", func() error {
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			if err := mpi.Barrier(world); err != nil {
				return err
			}
			return errors.New("the matrix is singular")
		})
	})
)

// The rank that has exited is the cause, though the others are in Finalize and notice.
func TestCauseIsTheRankThatExits(t *testing.T) {
	t.Parallel()
	for range 10 {
		r := launchertest.Run(t, launchertest.Ranks(4, exitsInFinalize))
		f := r.Cause(t)
		require.Equal(t, []any{launcher.Exited, 2, 5}, []any{f.How, f.Rank, f.Status}, r.Err)
	}
}

// Where all ranks fail each error is whole, and one line names one rank.
func TestErrorsOfAllRanksComeWhole(t *testing.T) {
	for range 5 {
		r := launchertest.Run(t, launchertest.Ranks(4, allFail))
		require.Equal(t, 1, strings.Count(r.Err, "weft: rank "), r.Err)
		said := r.Cause(t).Rank
		require.Contains(t, r.Err, fmt.Sprintf("rank %d: the matrix is singular%s\n", said,
			strings.Repeat(".", 3000)))
	}
}

// Where all ranks fail with the same error it is there, and not once for each.
func TestEqualErrorsAreShownTogether(t *testing.T) {
	r := launchertest.Run(t, launchertest.Ranks(16, allFailAlike))
	r.Cause(t)
	require.Equal(t, 1, strings.Count(r.Err, "weft: rank "), r.Err)
	n := strings.Count(r.Err, "the matrix is singular\n")
	require.Positive(t, n)
	require.Less(t, n, 16, r.Err)
}

// losesInSplit: of the odd ranks of the world, 1 and 3, the latter ends; calls of the other one name it by its
// rank in their communicator, and in the world.
var losesInSplit = launchertest.Body("a rank of a split communicator ends", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		c, err := world.Split(world.Rank()%2, 0)
		if err != nil {
			return err
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		in := make([]int64, 1)
		if world.Rank()%2 == 0 {
			return mpi.Send(world, in, 1, 2)
		}
		if world.Rank() == 3 { // it ends when the other has left the Barrier too
			if _, err := mpi.Recv(c, in, 0, 1); err != nil {
				return err
			}
			os.Exit(7)
		}
		for range 2 { // ranks 0 and 2 have left Split, which the loss of rank 3 would end
			if _, err := mpi.Recv(world, in, mpi.AnySource, 2); err != nil {
				return err
			}
		}
		_ = mpi.Send(c, in, 1, 1) // what has come may have ended the other before this returns
		for _, call := range []struct {
			tag int
			do  func() error
		}{
			{mpi.NoPeer, func() error { return mpi.Barrier(c) }},
			{mpi.NoPeer, func() error { return mpi.Allreduce(c, in, make([]int64, 1), mpi.Sum[int64]()) }},
			{0, func() error { return second(mpi.Recv(c, in, 1, 0)) }},
			{0, func() error { return second(mpi.Recv(c, in, mpi.AnySource, 0)) }},
		} {
			err := call.do()
			var e *mpi.Error
			if !errors.As(err, &e) || e.Peer != 1 || e.Tag != call.tag ||
				!strings.Contains(err.Error(), "world rank 3") {
				return fmt.Errorf("got %v; want peer 1, world rank 3, tag %d", err, call.tag)
			}
		}
		fmt.Println("well")
		return nil
	})
})

func TestFailedRankOfASplitCommunicatorIsNamed(t *testing.T) {
	r := launchertest.RunSurviving(t, launchertest.Ranks(4, losesInSplit))
	require.Contains(t, r.Out, "well\n", r.Err)
}
