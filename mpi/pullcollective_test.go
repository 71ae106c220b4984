package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// pulled are lengths of which collectives read straight from the other ranks' memory.
var pulled = []int{16 << 10, 16<<10 + 1, 100_003, 300_000}

// TestLongCollectivesOfOneHost: long vectors, with an operator that does not commute too, in place and from
// memory of Alloc, on a communicator whose ranks are in another order.
func TestLongCollectivesOfOneHost(t *testing.T) {
	for _, n := range testlength.Of([]int{2, 3, 5}, []int{2, 5}) {
		t.Run(fmt.Sprint(n), func(t *testing.T) { together(t, n, longCollectives, "WEFT_FABRIC=shm") })
	}
}

var longCollectives = body("longCollectives", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Split(0, -world.Rank())
	if err != nil {
		return err
	}
	for range 10 { // from then on there are mailboxes
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	size := c.Size()
	for i, n := range pulled {
		n /= 16
		root := []int{0, size / 2, size - 1}[i%3]
		if err := everyCollective(c, n, root); err != nil {
			return fmt.Errorf("%d elements, root %d: %w", n, root, err)
		}
		shared, err := mpi.AllocOn[int32](world, n*size)
		if err != nil {
			return err
		}
		for round := range 3 {
			for i := range shared {
				shared[i] = int32(c.Rank()*round + i)
			}
			if err := mpi.Allreduce(c, mpi.InPlace[int32](), shared, mpi.Sum[int32]()); err != nil {
				return err
			}
			for i, got := range shared {
				if wanted := int32(size*(size-1)/2*round + size*i); got != wanted {
					return want(fmt.Sprint("element ", i), got, wanted)
				}
			}
		}
		if err := firstError(mpi.Barrier(c), mpi.FreeOn(world, shared)); err != nil {
			return err
		}
	}
	return c.Free()
})

// TestLongCollectivesOnSeveralCommunicators: calls that are under way at the same time want the same stage.
func TestLongCollectivesOnSeveralCommunicators(t *testing.T) {
	together(t, 2, longAtOnce, "WEFT_FABRIC=shm", fmt.Sprintf("ROUNDS=%d", testlength.Of(200, 60)))
}

var longAtOnce = body("longAtOnce", func(_ context.Context, world *mpi.Comm) error {
	const n = 20_000
	errs := make(chan error)
	for k := range 3 {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		go func() {
			errs <- func() error {
				in, out := make([]int64, n), make([]int64, n)
				for round := range number("ROUNDS") {
					for i := range in {
						in[i] = int64(world.Rank() + i + round*k)
					}
					if err := mpi.Allreduce(c, in, out, mpi.Sum[int64]()); err != nil {
						return err
					}
					for i, got := range out {
						if wanted := int64(1 + 2*(i+round*k)); got != wanted {
							return want(fmt.Sprint("communicator ", k, ", round ", round, ", element ", i), got,
								wanted)
						}
					}
				}
				return nil
			}()
		}()
	}
	return firstError(<-errs, <-errs, <-errs)
})

// TestLongCollectivesGivenUp: ranks that end a collective by their contexts, before it or in the middle, stay
// in step with one another.
func TestLongCollectivesGivenUp(t *testing.T) {
	together(t, 3, givenUp, "WEFT_FABRIC=shm", fmt.Sprintf("ROUNDS=%d", testlength.Of(100, 20)), "LONG=20000", "SHORT=2000")
}

// TestDoublingGivenUp does the same where ranks exchange messages in mailboxes, in several rounds.
func TestDoublingGivenUp(t *testing.T) {
	together(t, 4, givenUp, "WEFT_FABRIC=shm", "WEFT_COLL=allreduce:doubling",
		fmt.Sprintf("ROUNDS=%d", testlength.Of(100, 20)), "LONG=1000", "SHORT=1")
}

var givenUp = body("givenUp", func(_ context.Context, world *mpi.Comm) error {
	const tag = 3
	me, size, long := world.Rank(), world.Size(), number("LONG")
	c, err := world.Dup()
	if err != nil {
		return err
	}
	whole, result := make([]int64, long), make([]int64, long)
	for round := range number("ROUNDS") {
		n := [...]int{long, number("SHORT")}[round%2] // one of 16,000 bytes stays registered from call to call
		in, out := whole[:n], result[:n]
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		if me == round%size {
			cancel()
			ended <- nil
		} else { // they end when the one that has given up says so
			go func() {
				_, err := mpi.Recv(world, make([]byte, 1), round%size, tag)
				cancel()
				ended <- err
			}()
		}
		err := mpi.Allreduce(c.WithContext(ctx), in, out, mpi.Sum[int64]())
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("round %d: %v", round, err)
		}
		if me == round%size {
			for peer := range size {
				if peer != me {
					if err := mpi.Send(world, make([]byte, 1), peer, tag); err != nil {
						return err
					}
				}
			}
		}
		if err := <-ended; err != nil {
			return err
		}
		for i := range in {
			in[i] = int64(me + i + round)
		}
		if err := mpi.Allreduce(c, in, out, mpi.Sum[int64]()); err != nil {
			return err
		}
		for i, got := range out {
			if wanted := int64(size*(size-1)/2 + size*(i+round)); got != wanted {
				return want(fmt.Sprint("round ", round, ", element ", i), got, wanted)
			}
		}
	}
	return nil
})

// TestSharedCollectivesGivenUp: two ranks give a collective up, at any moment, in which one writes to the
// other's memory. That belongs to the program when the call has returned: nothing is written there any more.
func TestSharedCollectivesGivenUp(t *testing.T) {
	together(t, 2, sharedGivenUp, "WEFT_FABRIC=shm", fmt.Sprintf("ROUNDS=%d", testlength.Of(400, 80)))
}

var sharedGivenUp = body("sharedGivenUp", func(_ context.Context, world *mpi.Comm) error {
	const n, tag, mine = 40_000, 3, -1
	me, peer := world.Rank(), 1-world.Rank()
	c, err := world.Dup()
	if err != nil {
		return err
	}
	in, out := make([]int64, n), make([]int64, n)
	calls := [...]func(c *mpi.Comm, written int) error{
		func(c *mpi.Comm, written int) error { return mpi.Bcast(c, out, 1-written) },
		func(c *mpi.Comm, written int) error { return mpi.Reduce(c, in, out, mpi.Sum[int64](), written) },
	}
	for round := range number("ROUNDS") {
		call, written := calls[round%2], round/2%2
		for i := range in {
			in[i], out[i] = int64(i+round), int64(2*(i+round))
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			if round/4%2 == me {
				for range round % 32 * 500 {
					runtime.Gosched()
				}
				cancel()
			}
			_, err := mpi.Recv(world, make([]byte, 1), peer, tag) // the other's call is over
			cancel()
			ended <- err
		}()
		if err := call(c.WithContext(ctx), written); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i := range out {
			out[i] = mine
		}
		if err := firstError(mpi.Send(world, make([]byte, 1), peer, tag), <-ended, mpi.Barrier(world)); err != nil {
			return err
		}
		for i, got := range out {
			if got != mine {
				return want(fmt.Sprint("round ", round, ", element ", i, " after the call"), got, mine)
			}
			if me != written {
				out[i] = int64(2 * (i + round))
			}
		}
		if err := call(c, written); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i, got := range out {
			if wanted := int64(2 * (i + round)); got != wanted {
				return want(fmt.Sprint("round ", round, ", element ", i), got, wanted)
			}
		}
	}
	return c.Free()
})

// TestLongCollectivesThatDiffer: who waits for the end of one collective hears that another rank is in
// another.
func TestLongCollectivesThatDiffer(t *testing.T) {
	r := launch(t, 3, longDiffer, "WEFT_FABRIC=shm")
	require.Error(t, r.Failure)
	assert.Contains(t, r.Err, "different collectives")
}

var longDiffer = body("longDiffer", func(_ context.Context, world *mpi.Comm) error {
	for range 20 {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}
	buf := make([]int64, 20_000)
	if world.Rank() == 0 {
		return mpi.Bcast(world, buf, 0)
	}
	// Both go through mailboxes, the root of the one expects the end of its own.
	return mpi.Allreduce(world, mpi.InPlace[int64](), buf, mpi.Sum[int64]())
})

// TestReducesThatOutgrowMailboxes: vectors that are read, because the first mailboxes are too small for them,
// go through larger ones after some calls; vectors that are too long for those do not, or in pieces.
func TestReducesThatOutgrowMailboxes(t *testing.T) {
	r := launch(t, 2, outgrowMailboxes, "WEFT_FABRIC=shm", "WEFT_COLL=explain")
	require.NoError(t, r.Failure)
	for bytes, last := range map[int][]string{8192: {"direct"}, 16384: {"pull", "pieces"}} {
		how := strings.Split(r.Err, fmt.Sprintf("Reduce on world, 2 ranks, %d bytes: ", bytes))
		require.Greater(t, len(how), 1, r.Err)
		name, _, _ := strings.Cut(how[len(how)-1], ",")
		assert.Contains(t, last, name, "%d bytes at last: %s", bytes, r.Err)
	}
}

// TestCopyCosts_DecideCollectives: two ranks whose copies cost what those of another processor do combine long
// vectors in the way that suits that one.
func TestCopyCosts_DecideCollectives(t *testing.T) {
	for _, c := range []struct{ name, costs, allreduce, reduce string }{
		{"Intel Xeon", "800ns,57ns,200ns", "pull", "pull"},
		{"AMD EPYC, family 26, cores at one cache", "950ns,60ns,40ns", "pieces", "direct"},
		{"AMD EPYC, family 25, cores at one cache", "1.4us,57ns,55ns,107ns", "pieces", "direct"},
		{"AMD EPYC, family 25, cores apart", "1.4us,57ns,150ns,430ns", "direct", "pull"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := launch(t, 2, longVectors, "WEFT_FABRIC=shm", "WEFT_COLL=explain", "WEFT_CORES_PER_RANK=1",
				"WEFT_COPY_COSTS="+c.costs)
			require.NoError(t, r.Failure)
			for call, want := range map[string]string{"Allreduce": c.allreduce, "Reduce": c.reduce} {
				how := strings.Split(r.Err, call+" on world, 2 ranks, 262144 bytes: ")
				require.Greater(t, len(how), 1, r.Err)
				name, _, _ := strings.Cut(how[len(how)-1], ",")
				assert.Equal(t, want, name, "%s: %s", call, r.Err)
			}
		})
	}
}

var longVectors = body("longVectors", func(_ context.Context, world *mpi.Comm) error {
	in, out := make([]int64, 32<<10), make([]int64, 32<<10)
	for round := range 30 {
		for i := range in {
			in[i] = int64(world.Rank() + i + round)
		}
		call := func() error { return mpi.Allreduce(world, in, out, mpi.Sum[int64]()) }
		if round%2 == 1 {
			call = func() error { return mpi.Reduce(world, in, out, mpi.Sum[int64](), 0) }
		}
		if err := call(); err != nil {
			return err
		}
		for i, got := range out {
			if wanted := int64(1 + 2*(i+round)); (round%2 == 0 || world.Rank() == 0) && got != wanted {
				return want(fmt.Sprint("element ", i, " of round ", round), got, wanted)
			}
		}
	}
	return nil
})

var outgrowMailboxes = body("outgrowMailboxes", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{2048, 4096} {
		in, out := make([]float32, n), make([]float32, n)
		for round := range 40 {
			for i := range in {
				in[i] = float32(world.Rank() + i + round)
			}
			if err := mpi.Reduce(world, in, out, mpi.Sum[float32](), round%2); err != nil {
				return err
			}
			for i, got := range out {
				if wanted := float32(1 + 2*(i+round)); world.Rank() == round%2 && got != wanted {
					return want(fmt.Sprint("element ", i, " of round ", round), got, wanted)
				}
			}
		}
	}
	return nil
})
