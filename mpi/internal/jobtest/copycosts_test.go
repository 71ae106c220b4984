package jobtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi"
)

// TestCopyCosts_OfAnotherMachine: a job that starts with the copy costs of another machine, or with none,
// works, and soon has the costs that its own ranks have measured. Which way a message then goes also depends on
// whether its receiver waits for it, which on a busy machine most do not (see TestFragments of package engine).
func TestCopyCosts_OfAnotherMachine(t *testing.T) {
	if !sys.SteadyTicks() {
		t.Skip("copies are not sampled: there is no clock that is cheap enough")
	}
	for name, costs := range map[string]string{
		"none":                                  "",
		"Xeon, model 207":                       "from:500ns,70ns,210ns",
		"EPYC, family 26, cores apart":          "from:2300ns,65ns,205ns",
		"EPYC, family 26, cores at one cache":   "from:950ns,60ns,40ns",
		"EPYC, family 25, cores apart":          "from:1400ns,57ns,150ns,430ns",
		"EPYC, family 25, cores at one cache":   "from:1400ns,57ns,55ns,107ns",
		"one on which memory moves at no cost":  "from:1s,1ns,1ns",
		"one on which memory hardly moves ever": "from:1ns,1ns,1s",
	} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, foreignCosts, "WEFT_FABRIC=shm", "WEFT_COPY_COSTS="+costs, "WEFT_CORES_PER_RANK=1")
		})
	}
}

var foreignCosts = body("foreign costs", func(_ context.Context, world *mpi.Comm) error {
	if err := dialogue(world, 8, 1); err != nil {
		return err
	}
	start, err := channel(world)
	if err != nil {
		return err
	}
	for n := 8 << 10; n <= 128<<10; n *= 2 {
		if err := dialogue(world, n, 100); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return measures(world, start.MappedKiB)
})

// measures has both ranks send messages until neither has the costs of the start.
func measures(world *mpi.Comm, start time.Duration) error {
	for begun := time.Now(); ; {
		if err := dialogue(world, 16<<10, 100); err != nil {
			return err
		}
		now, err := channel(world)
		if err != nil {
			return err
		}
		own, both := []int{0}, []int{0}
		if now.MappedKiB == start {
			own[0] = 1
		}
		if err := mpi.Allreduce(world, own, both, mpi.Sum[int]()); err != nil || both[0] == 0 {
			return err
		}
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("after %d messages the costs are still %v, as at the start", now.Sent, start)
		}
	}
}

// dialogue has the ranks send each other messages in turns.
func dialogue(world *mpi.Comm, n, messages int) error {
	b, peer := make([]byte, n), 1-world.Rank()
	for i := range 2 * messages {
		var err error
		if i%2 == world.Rank() {
			b[0], b[n-1] = byte(i), byte(i>>8)
			err = mpi.Send(world, b, peer, 0)
		} else if _, err = mpi.Recv(world, b, peer, 0); err == nil && (b[0] != byte(i) || b[n-1] != byte(i>>8)) {
			err = fmt.Errorf("message %d of %d bytes arrived as %d", i, n, b[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// channel returns the counters of the messages to the other rank, of the endpoint that the world uses.
func channel(world *mpi.Comm) (used mpi.ChannelStats, err error) {
	for _, c := range world.Stats().Channels {
		if c.Sent > used.Sent {
			used = c
		}
	}
	return used, want("the peer of the channel", used.Peer, 1-world.Rank())
}
