package jobtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// TestMailboxes_E1_SmallUntilLongCallsComeAgain: what the mailboxes of a communicator take at a rank after
// short collectives, and after long ones; that of a communicator that is freed is given back.
func TestMailboxes_E1_SmallUntilLongCallsComeAgain(t *testing.T) {
	for _, n := range []int{2, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, mailboxMemory, "WEFT_FABRIC=shm") })
	}
}

// mailboxMemoryOf is the memory by the number of ranks: first, and after long calls.
var mailboxMemoryOf = map[int][2]int{2: {1920, 131_456}, 16: {54_784, 991_744}}

var mailboxMemory = body("mailbox memory", func(_ context.Context, world *mpi.Comm) error {
	memory := mailboxMemoryOf[world.Size()]
	if err := firstError(sums(world, 1), wantMailboxMemory(world, memory[0])); err != nil {
		return err
	}
	dup, err := world.Dup()
	if err := firstError(err, sums(dup, 1), wantMailboxMemory(world, 2*memory[0]), dup.Free(),
		wantMailboxMemory(world, memory[0])); err != nil {
		return err
	}
	return firstError(sums(world, 128), wantMailboxMemory(world, memory[1]), sums(world, 1))
})

// sums has the ranks add up vectors of n words, often enough for mailboxes that suit them.
func sums(c *mpi.Comm, n int) error {
	in, out := make([]int64, n), make([]int64, n)
	for call := range 20 {
		for i := range in {
			in[i] = int64(call + i*c.Rank())
		}
		if err := mpi.Allreduce(c, in, out, mpi.Sum[int64]()); err != nil {
			return err
		}
		for i, got := range out {
			if wanted := call*c.Size() + i*c.Size()*(c.Size()-1)/2; got != int64(wanted) {
				return fmt.Errorf("call %d: sum %d of %d is %d, want %d", call, i, n, got, wanted)
			}
		}
	}
	return nil
}

// wantMailboxMemory waits until a rank's collectives have so many bytes of buffers: the other ranks may not be
// done with what is given back.
func wantMailboxMemory(world *mpi.Comm, bytes int) error {
	for begun := time.Now(); world.Stats().Collective != bytes; {
		_, _, err := mpi.Iprobe(world, mpi.AnySource, mpi.AnyTag)
		if err == nil && time.Since(begun) > time.Minute {
			err = context.DeadlineExceeded
		}
		if err != nil {
			return fmt.Errorf("%d bytes of buffers, want %d: %w", world.Stats().Collective, bytes, err)
		}
	}
	return mpi.Barrier(world)
}

// TestMailboxes_GrowWhereContextsEnd: calls that some ranks give up, before and while larger mailboxes are
// prepared, leave the ranks in step.
func TestMailboxes_GrowWhereContextsEnd(t *testing.T) {
	ranks(t, 3, mailboxGrowth, "WEFT_FABRIC=shm")
}

var mailboxGrowth = body("mailbox growth", func(_ context.Context, world *mpi.Comm) error {
	for round := range 6 {
		dup, err := world.Dup()
		if err != nil {
			return err
		}
		for call := range 30 {
			ctx, cancel := context.WithTimeout(context.Background(),
				time.Duration((call+dup.Rank())%3*round)*20*time.Microsecond)
			in := make([]int64, []int{128, 1}[call%5/4])
			_ = mpi.Allreduce(dup.WithContext(ctx), in, in, mpi.Sum[int64]()) // it may come to its end, or not
			cancel()
		}
		if err := firstError(sums(dup, 1), sums(dup, 128), sums(dup, 1), dup.Free()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
})
