package jobtest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// contactsAll: every rank exchanges a message with one neighbor and counts its descriptors, and does so again
// with all others.
var contactsAll = launchertest.Body("every rank contacts every other", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if err := contact(world, 1); err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		// A connection that comes up at the same time has descriptors for that moment.
		with1 := openDescriptors()
		for range 200 {
			time.Sleep(time.Millisecond)
			with1 = min(with1, openDescriptors())
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		for d := 2; d < world.Size(); d++ {
			if err := contact(world, d); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		deadline := time.Now().Add(2 * time.Minute)
		for openDescriptors() > with1 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n := openDescriptors(); n > with1 {
			return fmt.Errorf("%d descriptors after contact with one rank, %d after contact with %d", with1, n,
				world.Size()-1)
		}
		fmt.Println("as many as before")
		return mpi.Barrier(world)
	})
})

// contact exchanges a word with the ranks at a distance, up and down.
func contact(c *mpi.Comm, distance int) error {
	n, r := c.Size(), c.Rank()
	var in [1]int64
	_, err := mpi.Sendrecv(c, []int64{int64(r)}, (r+distance)%n, 0, in[:], (r+n-distance)%n, 0)
	if err == nil && in[0] != int64((r+n-distance)%n) {
		return fmt.Errorf("rank %d says that it is %d", (r+n-distance)%n, in[0])
	}
	return err
}

func openDescriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 1 << 20
	}
	return len(list)
}

// Over shared memory a rank has as many descriptors after contact with all others as after contact with one.
func TestContactOverSharedMemoryLeavesNoDescriptor(t *testing.T) {
	const n = 12
	r := launchertest.Run(t, launchertest.Ranks(n, contactsAll, "WEFT_FABRIC=shm"))
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, n, strings.Count(r.Out, "as many as before\n"), r.Out)
}
