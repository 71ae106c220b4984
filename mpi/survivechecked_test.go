package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// What a failure has kept survivors from receiving is no mistake of theirs, whether the sender has failed or
// not, and neither is what comes on a communicator that was revoked. What is left over among the survivors is.
func TestSurvivors_AreNotBlamedForWhatTheyCouldNotReceive(t *testing.T) {
	for _, check := range []string{"WEFT_CHECK=0", "WEFT_CHECK=1"} {
		onFabrics(t, func(t *testing.T, fabric string) {
			r := launchertest.RunSurviving(t, launchertest.Ranks(3, leavesBehind, fabric, check))
			f := r.Cause(t)
			require.Equal(t, launcher.RanksLost, f.How, "%s", r.Err)
			require.Contains(t, r.Err, "without 1 of its 3 ranks")
			require.Equal(t, 2, strings.Count(r.Out, "went on"), "%s", r.Err)
			require.NotContains(t, r.Err, "never received")
			require.NotContains(t, r.Err, "mistake")

			r = launchertest.RunSurviving(t, launchertest.Ranks(3, leavesBehind, fabric, check, "ONE_MORE=1"))
			require.Equal(t, 1, strings.Count(r.Err, "never received"), "%s", r.Err)
			require.Regexp(t, "from rank 1.* tag 4", r.Err)
		})
	}
}

// leavesBehind: rank 0 does not receive what has tags 1 to 4. Rank 2 fails, and a communicator of the others is
// revoked.
var leavesBehind = body("leaves messages behind", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	pair, err := world.Split(me/2, me)
	if err != nil {
		return err
	}
	if me > 0 {
		err = mpi.Send(world, []byte{1}, 0, me)
	}
	if me == 1 {
		err = firstError(err, mpi.Send(pair, []byte{1}, 0, 3), mpi.Send(pair, []byte{1}, 0, 5))
	}
	if err != nil {
		return err
	}
	switch me {
	case 2: // it fails when its message has been received
		if err := firstError(second(mpi.Sendrecv(world, []byte{1}, 0, 5, []byte{0}, 0, 5)),
			second(mpi.Recv(world, []byte{0}, 0, 6))); err != nil {
			return err
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case 0:
		err = firstError(second(mpi.Recv(pair, []byte{0}, 1, 5)),
			second(mpi.Sendrecv(world, []byte{1}, 2, 5, []byte{0}, 2, 5)),
			mpi.Send(world, []byte{1}, 2, 6), pair.Revoke())
	case 1:
		for err == nil {
			time.Sleep(time.Millisecond)
			_, _, err = mpi.Iprobe(pair, mpi.AnySource, 0)
		}
		if errors.Is(err, mpi.ErrRevoked) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	if err := wantError("Barrier", mpi.Barrier(world), mpi.ErrProcFailed); err != nil {
		return err
	}
	left, err := world.Shrink()
	if err != nil {
		return err
	}
	if me == 1 && os.Getenv("ONE_MORE") != "" {
		err = mpi.Send(left, []byte{1}, 0, 4)
	}
	if err := firstError(err, mpi.Barrier(left)); err != nil {
		return err
	}
	fmt.Println("went on")
	return nil
})
