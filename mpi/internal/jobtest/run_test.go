package jobtest_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// A body that ends its goroutine ends the job, and the reason is said.
func TestRun_GoexitEndsTheJob(t *testing.T) {
	r := launch(t, 2, goexitBody)
	require.Equal(t, 2, r.Cause(t).Status)
	require.Contains(t, r.Err, "weft: rank 1: the body of Run ended its goroutine")
}

var goexitBody = body("goexit", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 1 {
		runtime.Goexit()
	}
	return mpi.Barrier(world)
})

// One rank's body fails while the others are in Finalize: the error is printed once, and no rank adds one of
// its own.
func TestRun_OneErrorForOneCause(t *testing.T) {
	t.Parallel()
	for range 10 {
		r := launch(t, 3, oneFails)
		require.Equal(t, 1, r.Cause(t).Status)
		require.Equal(t, 0, r.Cause(t).Rank)
		var lines []string
		for line := range strings.Lines(r.Err) {
			if !strings.HasPrefix(line, "weft: ") {
				lines = append(lines, line)
			}
		}
		require.Equal(t, []string{"the matrix is singular\n"}, lines, "%s", r.Err)
	}
}

var oneFails = body("one fails", func(_ context.Context, world *mpi.Comm) error {
	if err := mpi.Barrier(world); err != nil || world.Rank() != 0 {
		return err
	}
	time.Sleep(50 * time.Millisecond) // the others are in Finalize most often
	return errors.New("the matrix is singular")
})

func TestBodyFails(t *testing.T) {
	r := launch(t, 3, failingBody)
	f := r.Cause(t)
	require.Equal(t, 1, f.Rank, "standard error:\n%s", r.Err)
	require.Contains(t, r.Err, "the matrix is singular")
}

// The rank that ends the job gets to say why, however long it takes to.
func TestBodyFailsAndSaysWhy(t *testing.T) {
	r := launch(t, 3, failingBody, slowVariable+"=1")
	require.Error(t, r.Failure)
	require.Contains(t, r.Err, "the matrix is singular")
}

// One rank fails while the others wait for it: the job ends, and that rank is the cause.
var failingBody = body("failing body", func(_ context.Context, world *mpi.Comm) error {
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if world.Rank() == 1 {
		return errors.New("the matrix is singular")
	}
	return mpi.Barrier(world)
})
