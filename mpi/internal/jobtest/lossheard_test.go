package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

const lossVariable = "MPI_TEST_LOSS"

// hearsOfALoss: rank 2 cuts its connection to rank 0, which revokes the world. Rank 1, which has no connection
// to rank 2, then returns the error of its call, and nothing of the other two reaches the launcher before or
// after, for both live. Without the variable rank 0 revokes the world by its choice.
var hearsOfALoss = launchertest.Body("hears of a loss", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if mpi.Restarted() > 0 {
			fmt.Println("well")
			return nil
		}
		loss, in := os.Getenv(lossVariable) != "", make([]int64, 1)
		switch world.Rank() {
		case 0:
			if err := second(mpi.Recv(world, in, 2, 0)); err != nil {
				return err
			}
			if err := second(mpi.Recv(world, in, 1, 0)); err != nil {
				return err
			}
			if loss {
				_ = mpi.Send(world, in, 2, 0) // rank 2 may have ended the connection before this returns
				if err := second(mpi.Recv(world, in, 2, 1)); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("rank 2 is not lost: %v", err)
				}
			}
			if err := world.Revoke(); err != nil {
				return err
			}
		case 1:
			if err := mpi.Send(world, in, 0, 0); err != nil {
				return err
			}
			return second(mpi.Recv(world, in, 0, 0))
		case 2:
			if err := mpi.Send(world, in, 0, 0); err != nil {
				return err
			}
			if loss {
				if err := second(mpi.Recv(world, in, 0, 0)); err != nil {
					return err
				}
				cutTCP()
			}
		}
		select {}
	})
})

// cutTCP ends all TCP connections of this process.
func cutTCP() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		peer, _ := syscall.Getpeername(fd) // nil where there is none
		switch peer.(type) {
		case *syscall.SockaddrInet4, *syscall.SockaddrInet6:
			syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
}

// The job of a rank that has only heard of a loss, from a rank that has revoked a communicator, is started
// again, though the launcher hears of the loss from nobody else in time.
func TestRestarted_AfterALossThatOthersHaveSeen(t *testing.T) {
	t.Parallel()
	r := launchertest.RunAgain(t, 1, launchertest.Ranks(3, hearsOfALoss, lossVariable+"=1", "WEFT_FABRIC=tcp",
		"WEFT_RECONNECT=off", "WEFT_ENDPOINTS=1"))
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, 3, strings.Count(r.Out, "well\n"), r.Out)
	require.Contains(t, r.Err, "rank 1")
	require.Contains(t, r.Err, "restart 1 of 1")
}

// A program that revokes a communicator by its choice, and fails, is not.
func TestRestarted_NotAfterARevokeByChoice(t *testing.T) {
	t.Parallel()
	r := launchertest.RunAgain(t, 1, launchertest.Ranks(3, hearsOfALoss))
	f := r.Cause(t)
	require.Equal(t, []any{launcher.Aborted, 1}, []any{f.How, f.Rank}, r.Err)
	require.NotContains(t, r.Err, "restart 1 of 1")
}
