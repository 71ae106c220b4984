package jobtest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var restarted = launchertest.Body("restarted", func() error {
	before := mpi.Restarted()
	return mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error {
		sum := []int{c.Rank()}
		if err := mpi.Allreduce(c, mpi.InPlace[int](), sum, mpi.Sum[int]()); err != nil {
			return err
		}
		fmt.Printf("rank %d: start %d, sum %d\n", c.Rank(), mpi.Restarted(), sum[0])
		if before != mpi.Restarted() {
			return fmt.Errorf("%d before Init", before)
		}
		if mpi.Restarted() < 2 && c.Rank() == mpi.Restarted()+1 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return mpi.Barrier(c)
	})
})

// The ranks of each start reach each other, whoever was killed in the one before.
func TestRestarted(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launchertest.RunAgain(t, 2, launchertest.Ranks(4, restarted, fabric))
		require.NoError(t, r.Failure, r.Err)
		for rank := range 4 {
			require.Equal(t, 1, strings.Count(r.Out, fmt.Sprintf("rank %d: start 2, sum 6\n", rank)), r.Out)
		}
		require.Contains(t, r.Err, "restart 2 of 2")
	})
}

// A count that is none is refused by Init.
func TestRestartedRefusesNonsense(t *testing.T) {
	r := launchertest.Run(t, launchertest.Ranks(1, restarted, "WEFT_RESTARTED=often"))
	require.Error(t, r.Failure)
	require.Contains(t, r.Err, `WEFT_RESTARTED="often": not a whole number`)
}
