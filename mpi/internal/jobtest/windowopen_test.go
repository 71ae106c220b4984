package jobtest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// putsThat has rank 0 Put twice and Get once at rank 1 after a Fence, and then end.
func putsThat(end func(c *mpi.Comm, w *mpi.Win[int64]) error) func(context.Context, *mpi.Comm) error {
	return func(_ context.Context, c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 4)
		if err != nil {
			return err
		}
		w.Comm().SetName("halo")
		if err := w.Fence(); err != nil {
			return err
		}
		if c.Rank() == 0 {
			for at := range 2 {
				if err := w.Put([]int64{1}, 1, at); err != nil {
					return err
				}
			}
			if err := w.Get(make([]int64, 1), 1, 2); err != nil {
				return err
			}
		}
		return end(c, w)
	}
}

// ended ends at once.
func ended(*mpi.Comm, *mpi.Win[int64]) error { return nil }

func endedAfterAFence(_ *mpi.Comm, w *mpi.Win[int64]) error { return w.Fence() }

func hangs(c *mpi.Comm, _ *mpi.Win[int64]) error { return recvOne(c, 1-c.Rank(), 5) }

func hangsAfterAFence(c *mpi.Comm, w *mpi.Win[int64]) error {
	if err := w.Fence(); err != nil {
		return err
	}
	return hangs(c, w)
}

var (
	putsEnded            = body("Puts without a Fence, and Finalize", putsThat(ended))
	putsEndedAfterAFence = body("Puts, a Fence, and Finalize", putsThat(endedAfterAFence))
	putsHang             = body("Puts without a Fence, and a hang", putsThat(hangs))
	putsHangAfterAFence  = body("Puts, a Fence, and a hang", putsThat(hangsAfterAFence))
)

// The report of a job that hangs tells of Puts and Gets that nothing has ended, and only of those.
func TestWindowOpen_OfAJobThatHangs(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string]bool{putsHang: true, putsHangAfterAFence: false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := launchertest.Run(t, launchertest.Ranks(2, name, "WEFT_FABRIC=tcp"))
			require.Equal(t, launcher.Deadlocked, r.Cause(t).How, r.Err)
			if !tells {
				require.NotContains(t, r.Err, "part of window")
				return
			}
			require.Regexp(t, `\n(weft: )? *rank 0 has 2 Puts and 1 Get on rank 1's part of window halo\S*, `+
				`the oldest for [0-9.]+m?s, and no Fence, Flush or Unlock since\n`, r.Err)
		})
	}
}

// A rank that ends without the Fence after its Puts is told so.
func TestWindowOpen_AtFinalize(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string]bool{putsEnded: true, putsEndedAfterAFence: false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := launchertest.Run(t, launchertest.Ranks(2, name, "WEFT_FABRIC=tcp"))
			require.NoError(t, r.Failure, r.Err)
			if !tells {
				require.Empty(t, r.Err)
				return
			}
			require.Contains(t, r.Err, "rank 0 came to Finalize with "+
				"2 Puts and 1 Get on rank 1's part of window halo")
			require.Contains(t, r.Err, " without a Fence after\n")
		})
	}
}
