package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// contactStart is the variable with the time at which the ranks begin, in nanoseconds.
const contactStart = "TEST_CONTACT_START"

// contactsAtOnce: every rank sends 8 bytes to all others, and receives theirs; nothing was sent before. Rank 0
// prints the time from the beginning until the last rank has all, and the processor time of all ranks until
// then, in nanoseconds.
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
		before, err := processorTime()
		if err != nil {
			return err
		}
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
		after, err := processorTime()
		used := []int64{after - before}
		err = errors.Join(err, mpi.Allreduce(world, mpi.InPlace[int64](), took, mpi.Max[int64]()),
			mpi.Allreduce(world, mpi.InPlace[int64](), used, mpi.Sum[int64]()))
		if me == 0 {
			fmt.Println(took[0], used[0])
		}
		return err
	})
})

// processorTime returns the processor time of this process, in nanoseconds.
func processorTime() (int64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano(), err
}

func BenchmarkFirstContact(b *testing.B) {
	const ranks = 64
	total, used := time.Duration(0), time.Duration(0)
	for b.Loop() {
		start := time.Now().Add(2 * time.Second).UnixNano()
		r := launchertest.Run(b, launchertest.Ranks(ranks, contactsAtOnce, "WEFT_FABRIC=shm",
			fmt.Sprint(contactStart, "=", start)))
		require.NoError(b, r.Failure, r.Err)
		var took, processor time.Duration
		_, err := fmt.Sscan(r.Out, &took, &processor)
		require.NoError(b, err, r.Out)
		total += took
		used += processor
	}
	b.ReportMetric(float64(total.Microseconds())/1e3/float64(b.N), "ms/exchange")
	b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N)/(ranks*(ranks-1)), "µs/end")
}
