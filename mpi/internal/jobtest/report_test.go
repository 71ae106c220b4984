package jobtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// The counters of every rank are printed when a rank fails.
func TestStats_OfAJobThatFails(t *testing.T) {
	r := launch(t, 3, failingBody, "WEFT_STATS=1")
	require.Equal(t, 1, r.Cause(t).Rank)
	for _, rank := range []string{"weft: rank 0: ", "weft: rank 1: ", "weft: rank 2: "} {
		require.Contains(t, r.Err, rank)
	}
	require.Contains(t, r.Err, "the matrix is singular")
}

// They are printed when the job takes too long: here, once the timeout is so long that the ranks have started.
func TestStats_OfAJobThatTimesOut(t *testing.T) {
	t.Parallel()
	for timeout := time.Second; ; timeout *= 2 {
		out, err := jobWith(t, launcher.Job{Apps: []launcher.App{launchertest.Ranks(2, waitingBody, "WEFT_STATS=1")},
			Timeout: timeout, Grace: time.Minute})
		require.Error(t, err)
		if strings.Contains(out, "weft: rank 0: ") && strings.Contains(out, "weft: rank 1: ") {
			return
		}
		require.Less(t, timeout, time.Minute, "%s", out)
	}
}

// Calls on windows are counted as all others are.
func TestStats_HaveCallsOnWindows(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		r := launch(t, 2, tracedWindows, "WEFT_STATS=1", "WEFT_FABRIC="+fabric)
		require.NoError(t, r.Failure, "%s", r.Err)
		for _, call := range []string{"Win.Put", "Win.Get", "Win.Accumulate", "Win.FetchAndOp", "Win.Lock",
			"Win.Flush", "Win.Unlock", "Win.Fence", "Win.Free"} {
			require.Regexp(t, `time in calls:.* `+call+` \d+ in `, r.Err)
		}
	}
}

var waitingBody = body("waiting", func(_ context.Context, world *mpi.Comm) error {
	_, err := mpi.Recv(world, make([]int, 1), 1-world.Rank(), 0)
	return err
})

// WEFT_LOG=debug tells how a rank joined its job, and of its communicators.
func TestLog_Debug(t *testing.T) {
	r := launch(t, 2, dupAndFree, "WEFT_LOG=debug", "WEFT_FABRIC=tcp")
	require.NoError(t, r.Failure, "%s", r.Err)
	for _, text := range []string{
		`level=DEBUG msg="joined the job" rank=1 host=\S+ size=2 address="tcp=tcp:127\.0\.0\.1:`,
		"WEFT_FABRIC=tcp", "WEFT_LOG=debug",
		`msg=communicator rank=0 host=\S+ name=world\.\d+(@\d)? id=\d+ commRank=0 size=2`,
		`msg="communicator freed" rank=0 host=\S+ name=rows commRank=0`,
		"msg=Finalize rank=0",
	} {
		require.Regexp(t, text, r.Err)
	}
}

var dupAndFree = body("dup and free", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	c.SetName("rows")
	return c.Free()
})
