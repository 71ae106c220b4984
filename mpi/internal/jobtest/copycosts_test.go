package jobtest_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi"
)

// TestCopyCosts_OfAnotherMachine: a job that starts with the copy costs of another machine, or with none,
// works, and soon moves messages of every length as the costs demand that its own ranks have measured.
func TestCopyCosts_OfAnotherMachine(t *testing.T) {
	if !sys.SteadyTicks() {
		t.Skip("copies are not sampled: there is no clock that is cheap enough")
	}
	for name, costs := range map[string]string{
		"none":                                  "",
		"Xeon, model 207":                       "from:500ns,70ns,210ns",
		"EPYC, family 26, cores apart":          "from:2300ns,65ns,205ns",
		"EPYC, family 26, cores at one cache":   "from:950ns,60ns,40ns",
		"one on which memory moves at no cost":  "from:1s,1ns,1ns",
		"one on which memory hardly moves ever": "from:1ns,1ns,1s",
	} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, foreignCosts, "WEFT_FABRIC=shm", "WEFT_COPY_COSTS="+costs, "WEFT_CORES_PER_RANK=1")
		})
	}
}

var foreignCosts = body("foreign costs", func(_ context.Context, world *mpi.Comm) error {
	const sampled = 1000 // messages in a fraction of a second, after which costs must be sampled
	if err := dialogue(world, 8, 1); err != nil {
		return err
	}
	start, err := channel(world)
	if err != nil {
		return err
	}
	if err := dialogue(world, 16<<10, sampled); err != nil {
		return err
	}
	for n := 8 << 10; n <= 128<<10; n *= 2 {
		if err := goesAsMeasured(world, n, start.MappedKiB); err != nil {
			return fmt.Errorf("started with %s: %d bytes: %w", os.Getenv("WEFT_COPY_COSTS"), n, err)
		}
	}
	return nil
})

// goesAsMeasured has both ranks send messages until more go as their costs demand than would only to be sampled,
// and the costs are not those of the start. On a busy machine most receivers are late, and messages that nobody
// awaits go another way; and costs change while a host moves the cores.
func goesAsMeasured(world *mpi.Comm, n int, start time.Duration) error {
	const messages, exceptions = 100, 80 // no more than 10 are sampled
	for begun := time.Now(); ; {
		before, err := channel(world)
		if err == nil {
			err = dialogue(world, n, messages)
		}
		after, err2 := channel(world)
		if err := firstError(err, err2); err != nil {
			return err
		}
		wrong := after.RendezvousBytes - before.RendezvousBytes
		if n > after.Awaited {
			wrong = after.EagerBytes - before.EagerBytes
		}
		var here, all [1]int64
		if after.Awaited != before.Awaited || after.MappedKiB == start || wrong > uint64(exceptions*n) {
			here[0] = 1
		}
		if err := mpi.Allreduce(world, here[:], all[:], mpi.Sum[int64]()); err != nil || all[0] == 0 {
			return err
		}
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("%d of %d bytes go the wrong way: before %+v, after %+v", wrong, messages*n, before,
				after)
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
