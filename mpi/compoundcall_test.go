package mpi_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

const setupRoundsVariable = "MPI_TEST_SETUP_ROUNDS"

// Contexts end at a random moment of Dup, Split, Create and CreateGroup, at each rank another. The next
// collective on the parent is in step.
func TestSetupIsInStepAfterContextsEnd(t *testing.T) {
	rounds := cmp.Or(os.Getenv(setupRoundsVariable), "50") // more for long runs by hand
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		for _, n := range []int{2, 4} {
			for _, cores := range []string{"", "0"} {
				t.Run(fmt.Sprintf("%d ranks, handler cores %q", n, cores), func(t *testing.T) {
					together(t, n, setupGivenUp, fabric, setupRoundsVariable+"="+rounds, "WEFT_CQ_CORES="+cores)
				})
			}
		}
	})
}

var setupGivenUp = body("setup given up", func(_ context.Context, world *mpi.Comm) error {
	rounds, err := strconv.Atoi(os.Getenv(setupRoundsVariable))
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(world.Rank()), 22))
	var took time.Duration // by the last call without a deadline
	given, made := 0, 0
	for round := range rounds {
		unlimited := round%7 == 0 // at all ranks
		within := time.Duration(0)
		if unlimited {
			within = time.Hour
		} else if random.IntN(8) != 0 { // else it ended before the call, whenever timers fire
			within = time.Duration(random.Int64N(int64(2 * took)))
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		began := time.Now()
		child, err := makeOne(world.WithContext(ctx), round)
		if unlimited {
			took = time.Since(began)
		}
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			given++
		case err != nil:
			return fmt.Errorf("round %d: %w", round, err)
		default:
			made++
		}
		sums := make([]int, 2)
		mine := []int{round + world.Rank(), 0}
		if child != nil {
			mine[1] = 1
		}
		if err := mpi.Allreduce(world, mine, sums, mpi.Sum[int]()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		n := world.Size()
		if err := want("sum", sums[0], n*round+n*(n-1)/2); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if child == nil {
			continue
		}
		if sums[1] == n {
			if err := checkedSum(child, round); err != nil {
				return err
			}
		}
		if err := child.Free(); err != nil {
			return err
		}
	}
	// Calls must have been given up, and all those without a deadline made.
	totals := make([]int, 2)
	if err := mpi.Allreduce(world, []int{given, made}, totals, mpi.Sum[int]()); err != nil {
		return err
	}
	if totals[0] < rounds/20 || totals[1] < (rounds+6)/7*world.Size() {
		return fmt.Errorf("of %d calls %d were given up and %d were not", rounds*world.Size(), totals[0],
			totals[1])
	}
	return nil
})

// makeOne makes a communicator of all ranks, in one way or another.
func makeOne(c *mpi.Comm, round int) (*mpi.Comm, error) {
	switch round % 4 {
	case 0:
		return c.Dup()
	case 1:
		return c.Split(3, -c.Rank())
	case 2:
		return c.CreateGroup(c.Group(), 7)
	default:
		return c.Create(c.Group())
	}
}

const dupsVariable = "MPI_TEST_DUPS"

func TestDupAndFreeAgainAndAgain(t *testing.T) {
	dups := os.Getenv(dupsVariable) // for long runs by hand
	if dups == "" {
		dups = "1500"
	}
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		together(t, 2, dupAgainAndAgain, fabric,
			dupsVariable+"="+dups)
	})
}

// Ids are used again after Free: many more communicators are made than there are ids. Memory does not grow.
var dupAgainAndAgain = body("dup again and again", func(_ context.Context, world *mpi.Comm) error {
	dups, err := strconv.Atoi(os.Getenv(dupsVariable))
	if err != nil {
		return err
	}
	mpi.LimitContextIDs(world, 8)
	var before, after runtime.MemStats
	for i := range dups {
		c, err := world.Dup()
		if err == nil && i%100 == 0 {
			err = checkedSum(c, i)
		}
		if err != nil {
			return fmt.Errorf("communicator %d: %w", i, err)
		}
		if err := c.Free(); err != nil {
			return err
		}
		if i == dups/2 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+256<<10 {
		return fmt.Errorf("%d bytes of heap after %d communicators, %d after half of them", after.HeapAlloc,
			dups, before.HeapAlloc)
	}
	return nil
})

// checkedSum adds up something over the communicator.
func checkedSum(c *mpi.Comm, salt int) error {
	sum, n := make([]int, 1), c.Size()
	if err := mpi.Allreduce(c, []int{salt + c.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	return want("sum on "+c.Name(), sum[0], n*salt+n*(n-1)/2)
}
