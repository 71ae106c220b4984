package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dieWithin ends this process at a random moment.
func dieWithin(limit time.Duration) {
	after(time.Duration(rand.Int64N(int64(limit))), die)
}

// requireSurvivors wants a job to end without some ranks, and so many of the others to say that all is as it should be.
func requireSurvivors(t *testing.T, well int, apps launcher.App) {
	t.Helper()
	r := launchertest.RunSurviving(t, apps)
	require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s%s", r.Out, r.Err)
	require.Equal(t, well, strings.Count(r.Out, "all is well\n"), "%s%s", r.Out, r.Err)
}

// shrinkTo shrinks a communicator until so many ranks are left, and checks that they work together.
func shrinkTo(c *mpi.Comm, size int) (*mpi.Comm, error) {
	for c.Size() > size {
		time.Sleep(time.Millisecond)
		var err error
		if c, err = c.Shrink(); err != nil {
			return nil, err
		}
	}
	if err := works(c, 1); err != nil {
		return nil, err
	}
	fmt.Println("all is well")
	return c, nil
}

// A rank dies before Init, and in it.
func TestSurvivors_DeathInInit(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		for _, within := range []string{"0", "5ms", "20ms"} {
			requireSurvivors(t, 3, launchertest.Ranks(4, diesInInit, fabric, "TEST_WITHIN="+within))
		}
	})
}

var diesInInit = launchertest.Body("dies in Init", func() error {
	if os.Getenv("PMI_RANK") == "2" {
		if within, _ := time.ParseDuration(os.Getenv("TEST_WITHIN")); within > 0 {
			dieWithin(within)
		} else {
			die()
		}
	}
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 2 {
			select {}
		}
		return second(shrinkTo(world, 3))
	})
})

// A rank dies while others are in Finalize, and while it is itself.
func TestSurvivors_DeathInFinalize(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		for victim := range 2 {
			requireSurvivors(t, 3, launchertest.Ranks(4, diesInFinalize, fabric, fmt.Sprint("TEST_VICTIM=", victim)))
		}
	})
}

var diesInFinalize = launchertest.Body("dies in Finalize", func() error {
	victim := false
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		dying, err := strconv.Atoi(os.Getenv("TEST_VICTIM"))
		if err != nil {
			return err
		}
		if err := works(world, 1); err != nil {
			return err
		}
		if victim = world.Rank() == dying; !victim {
			return mpi.Send(world, []byte{1}, dying, 0)
		}
		for range world.Size() - 1 { // it may not die before the others have their results
			if _, err := mpi.Recv(world, make([]byte, 1), mpi.AnySource, 0); err != nil {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond) // the others wait for it
		die()
		return nil
	})
	if err == nil {
		fmt.Println("all is well")
	}
	return err
})

// A failure concerns the communicators of the rank alone: those who have none of them with it go on without an
// error.
func TestSurvivors_OtherHalf(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) { requireSurvivors(t, 5, launchertest.Ranks(6, halves, fabric)) })
}

var halves = body("halves", func(_ context.Context, world *mpi.Comm) error {
	half, err := world.Split(world.Rank()/3, 0)
	if err != nil {
		return err
	}
	// Rank 4 dies when all have the half: a death before that would concern them.
	if world.Rank() == 4 {
		for range world.Size() - 1 {
			if _, err := mpi.Recv(world, make([]byte, 1), mpi.AnySource, 0); err != nil {
				return err
			}
		}
		dieWithin(5 * time.Millisecond)
	} else if err := mpi.Send(world, []byte{1}, 4, 0); err != nil {
		return err
	}
	for n := int64(0); n < 400 || world.Rank() >= 3; n++ { // the others of rank 4 go on until it is dead
		err := errors.Join(works(half, n), sendRing(1)(half, n))
		if world.Rank() < 3 && err != nil {
			return fmt.Errorf("the half in which nobody fails, in round %d: %w", n, err)
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return err
		}
		if world.Rank() < 3 && n%10 == 0 {
			d, err := half.Dup()
			if err != nil {
				return fmt.Errorf("Dup of the half in which nobody fails, in round %d: %w", n, err)
			}
			if err := d.Free(); err != nil {
				return err
			}
		}
		if err != nil {
			if err := half.Revoke(); err != nil {
				return err
			}
			if half, err = half.Shrink(); err != nil {
				return err
			}
			break
		}
	}
	if err := works(half, 1000); err != nil {
		return err
	}
	return second(shrinkTo(world, 5))
})

// A server that receives from any source goes on with the clients that are left, whenever it learns of the
// others' failures.
func TestAckFailed_Server(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) { requireSurvivors(t, 4, launchertest.Ranks(6, serves, fabric)) })
}

var serves = body("serves", func(_ context.Context, world *mpi.Comm) error {
	const perClient, bye = 300, 1
	if world.Rank() > 0 {
		if world.Rank() == 2 || world.Rank() == 4 {
			dieWithin(4 * time.Millisecond)
		}
		for n := range int64(perClient) {
			err := mpi.Send(world, contribution(world.Rank(), n, 4), 0, 0)
			if err == nil && n%10 == 0 {
				_, err = mpi.Recv(world, make([]int64, 1), 0, 2)
			}
			if err != nil {
				return fmt.Errorf("a client: %w", err)
			}
		}
		if world.Rank() == 2 || world.Rank() == 4 {
			select {}
		}
		if err := mpi.Ssend(world, []int64{0}, 0, bye); err != nil {
			return err
		}
		return second(shrinkTo(world, 4))
	}
	next, left := make([]int64, world.Size()), map[int]bool{}
	for len(left) < world.Size()-1 {
		got := make([]int64, 4)
		st, err := mpi.Recv(world, got, mpi.AnySource, mpi.AnyTag)
		if errors.Is(err, mpi.ErrProcFailed) {
			if err := world.AckFailed(); err != nil {
				return err
			}
			for _, rank := range world.Failed() {
				left[rank] = true
			}
			continue
		}
		if err != nil {
			return err
		}
		if st.Tag == bye {
			left[st.Source] = true
			continue
		}
		n := next[st.Source]
		if err := right("a client's message", got, nil, func(i int) int64 { return of(st.Source, n, i) }); err != nil {
			return err
		}
		if next[st.Source]++; n%10 == 0 {
			err = mpi.Send(world, []int64{n}, st.Source, 2)
			if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
		}
	}
	for _, rank := range []int{1, 3, 5} {
		if next[rank] != perClient {
			return fmt.Errorf("rank %d sent %d messages, and %d came", rank, perClient, next[rank])
		}
	}
	if f := world.Failed(); !slices.Equal(f, []int{2, 4}) {
		return fmt.Errorf("failed: %v", f)
	}
	return second(shrinkTo(world, 4))
})

// Ten ranks die one after another, each in the middle of a call and when the ranks have shrunk without the one
// before. SURVIVE_ROUNDS is how often.
func TestSurvivors_OneAfterAnother(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("SURVIVE_ROUNDS"))
	onFabrics(t, func(t *testing.T, fabric string) {
		for range max(rounds, 1) {
			requireSurvivors(t, 2, launchertest.Ranks(12, oneAfterAnother, fabric))
		}
	})
}

var oneAfterAnother = body("one after another", func(_ context.Context, world *mpi.Comm) error {
	c := world
	for death := range 10 {
		if c.Rank() == (5*death)%c.Size() {
			dieWithin(2 * time.Millisecond)
		}
		for target := c.Size() - 1; c.Size() > target; {
			var err error
			for n := int64(0); n < 20 && err == nil; n++ {
				err = works(c, n)
			}
			if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
			if err == nil {
				continue
			}
			if c, err = c.Shrink(); err != nil {
				return err
			}
		}
	}
	return second(shrinkTo(c, 2))
})
