package jobtest_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// contactStart is the variable with the time at which the ranks begin, in nanoseconds.
const contactStart = "TEST_CONTACT_START"

// contactsAtOnce: every rank sends 8 bytes to all others, and receives theirs; nothing was sent before. Rank 0
// prints the time from the beginning until the last rank has all, in nanoseconds.
var contactsAtOnce = launchertest.Body("every rank contacts all others at once", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		start, err := strconv.ParseInt(os.Getenv(contactStart), 10, 64)
		if err != nil {
			return err
		}
		early := time.Until(time.Unix(0, start))
		if early < 0 {
			return fmt.Errorf("rank %d was started %v too late", world.Rank(), -early)
		}
		time.Sleep(early)
		n, me := world.Size(), world.Rank()
		in, out, requests := make([]int64, n), []int64{int64(me)}, []mpi.Request(nil)
		for d := 1; d < n; d++ {
			r, err := mpi.Irecv(world, in[(me+n-d)%n:][:1], (me+n-d)%n, 0)
			if err != nil {
				return err
			}
			requests = append(requests, r)
		}
		for d := 1; d < n; d++ {
			r, err := mpi.Isend(world, out, (me+d)%n, 0)
			if err != nil {
				return err
			}
			requests = append(requests, r)
		}
		if err := mpi.Waitall(requests); err != nil {
			return err
		}
		took := []int64{time.Now().UnixNano() - start}
		err = mpi.Allreduce(world, mpi.InPlace[int64](), took, mpi.Max[int64]())
		if me == 0 {
			fmt.Println(took[0])
		}
		return err
	})
})

func BenchmarkFirstContact(b *testing.B) {
	total := time.Duration(0)
	for b.Loop() {
		start := time.Now().Add(2 * time.Second).UnixNano()
		r := launchertest.Run(b, launchertest.Ranks(64, contactsAtOnce, "WEFT_FABRIC=shm",
			fmt.Sprint(contactStart, "=", start)))
		require.NoError(b, r.Failure, r.Err)
		var took time.Duration
		_, err := fmt.Sscan(r.Out, &took)
		require.NoError(b, err, r.Out)
		total += took
	}
	b.ReportMetric(float64(total.Microseconds())/1e3/float64(b.N), "ms/exchange")
}
