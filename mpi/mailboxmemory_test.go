package mpi_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// A communicator that is freed while its ranks set up larger mailboxes leaves no memory of either.
func TestFree_DuringTheSetUpOfLargerMailboxes(t *testing.T) {
	together(t, 2, freedDuringSetUp, "WEFT_FABRIC=shm")
}

var freedDuringSetUp = body("freedDuringSetUp", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	for range 10 { // from then on there are mailboxes
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	first := mpi.CollectiveBytes(c)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	in, out := make([]float32, 1000), make([]float32, 1000)
	for range 8 { // too long for the first mailboxes
		err := mpi.Reduce(c.WithContext(ended), in, out, mpi.Sum[float32](), 0)
		if err := wantError("a call whose context has ended", err, context.Canceled); err != nil {
			return err
		}
	}
	if both := mpi.CollectiveBytes(c); first == 0 || both <= first {
		return fmt.Errorf("%d bytes for the first mailboxes, %d for both", first, both)
	}
	if err := c.Free(); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); mpi.CollectiveBytes(world) > 0; runtime.Gosched() {
		if time.Now().After(end) {
			return want("what is left", mpi.CollectiveBytes(world), 0)
		}
		if _, _, err := mpi.Iprobe(world, mpi.AnySource, 1); err != nil {
			return err
		}
	}
	return nil
})
