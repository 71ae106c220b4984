package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestExchange: whatever ranks send to whomever, each message arrives once, in its round, on its communicator.
func TestExchange(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		for _, n := range []int{1, 2, 5} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, exchanges, fabric) })
		}
	})
}

var exchanges = body("exchanges", func(_ context.Context, world *mpi.Comm) error {
	const communicators, rounds = 3, 40
	var wg sync.WaitGroup
	errs := make([]error, communicators)
	for k := range errs {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		wg.Go(func() {
			for round := range rounds {
				if err := sparseRound(c, k, round); err != nil {
					errs[k] = fmt.Errorf("communicator %d, round %d: %w", k, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
})

// exchangePlan draws how many elements each rank sends to each other one in a round; -1 for no message.
func exchangePlan(size, communicator, round int) [][]int {
	r := rand.New(rand.NewPCG(uint64(communicator), uint64(round)))
	plan := make([][]int, size)
	for from := range plan {
		plan[from] = make([]int, size)
		for to := range plan[from] {
			switch r.IntN(4) {
			case 0:
				plan[from][to] = r.IntN(4)
			case 1:
				plan[from][to] = r.IntN(20_000)
			default:
				plan[from][to] = -1
			}
		}
	}
	return plan
}

// exchangeElement is what a message holds.
func exchangeElement(communicator, round, from, to, i int) int64 {
	return int64(((communicator*1000+round)*100+from)*100+to)<<20 + int64(i)
}

func sparseRound(c *mpi.Comm, communicator, round int) error {
	plan, me := exchangePlan(c.Size(), communicator, round), c.Rank()
	to, want := map[int][]int64{}, map[int][]int64{}
	fill := func(m map[int][]int64, key, from, dest, n int) {
		if n >= 0 {
			m[key] = make([]int64, n)
			for i := range m[key] {
				m[key][i] = exchangeElement(communicator, round, from, dest, i)
			}
		}
	}
	for rank := range c.Size() {
		fill(to, rank, me, rank, plan[me][rank])
		fill(want, rank, rank, me, plan[rank][me])
	}
	from := map[int][]int64{}
	var err error
	if round%2 == 0 {
		from, err = mpi.Exchange(c, to)
	} else {
		var dests, counts []int
		var buf []int64
		for rank, block := range to {
			dests, counts, buf = append(dests, rank), append(counts, len(block)), append(buf, block...)
		}
		err = mpi.ExchangeFunc(c, dests, counts, buf, func(src int, data []int64) {
			from[src] = slices.Clone(data)
		})
	}
	if err != nil {
		return err
	}
	if len(from) != len(want) {
		return fmt.Errorf("%d messages, want %d", len(from), len(want))
	}
	for rank, block := range want {
		if got, ok := from[rank]; !ok || !slices.Equal(got, block) {
			return fmt.Errorf("from rank %d: %d elements, want %d", rank, len(got), len(block))
		}
	}
	return nil
}

// A rank that is listed twice gets its messages in order. Values of any type, and arguments that are wrong.
func TestExchange_ValuesAndArguments(t *testing.T) { ranks(t, 3, exchangeArguments) }

var exchangeArguments = body("exchange arguments", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	var got []int32
	err := mpi.ExchangeFunc(world, []int{next, next}, []int{1, 2000}, make([]int32, 2001),
		func(src int, data []int32) {
			if src == previous {
				got = append(got, int32(len(data)))
			}
		})
	if err := firstError(err, want("messages", fmt.Sprint(got), "[1 2000]")); err != nil {
		return err
	}
	values, err := mpi.ExchangeValues(world, map[int]map[string]int{next: {strings.Repeat("k", 9000): me}})
	if err := firstError(err, want("values", len(values), 1),
		want("value", values[previous][strings.Repeat("k", 9000)], previous)); err != nil {
		return err
	}
	_, err = mpi.Exchange(world, map[int][]int{size: nil})
	_, typed := mpi.Exchange(world, map[int][]string{next: nil})
	return firstError(wantError("rank", err, mpi.ErrRank), wantError("type", typed, mpi.ErrType),
		wantError("counts", mpi.ExchangeFunc(world, []int{0}, []int{2}, []int{1}, nil), mpi.ErrCount),
		wantError("negative count", mpi.ExchangeFunc(world, []int{0}, []int{-1}, []int{1}, nil), mpi.ErrCount),
		wantError("lengths", mpi.ExchangeFunc(world, []int{0}, nil, []int{1}, nil), mpi.ErrCount))
})

// An exchange that some rank does not call ends with its context, and the next one is not disturbed.
func TestExchange_EndsWithItsContext(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 3, exchangeGivenUp, fabric) })
}

var exchangeGivenUp = body("exchange given up", func(ctx context.Context, world *mpi.Comm) error {
	me, next := world.Rank(), (world.Rank()+1)%world.Size()
	for round := range 20 {
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		if me == 0 {
			cancel() // ends at its call, and counts it
		}
		long := make([]int, 1+round*1000)
		done := make(chan error, 1)
		go func() {
			_, err := mpi.Exchange(world.WithContext(limited), map[int][]int{next: long})
			done <- err
		}()
		if me != 0 {
			// Rank 0 takes no message, so this exchange cannot end by itself.
			if err := mpi.Send(world, []byte{1}, 0, 1); err != nil {
				return err
			}
			cancel()
		}
		if err := <-done; err == nil {
			return errors.New("an exchange without rank 0 is complete")
		}
		if me == 0 {
			for range world.Size() - 1 {
				if _, err := mpi.Recv(world, make([]byte, 1), mpi.AnySource, 1); err != nil {
					return err
				}
			}
		}
		from, err := mpi.Exchange(world, map[int][]int{next: {me, round}})
		previous := (me + world.Size() - 1) % world.Size()
		if err := firstError(err, want("messages", fmt.Sprint(from),
			fmt.Sprint(map[int][]int{previous: {previous, round}}))); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
})

// TestGraphOf: a graph from destinations alone has the sources that the destinations imply.
func TestGraphOf(t *testing.T) { ranks(t, 4, graphOf) }

var graphOf = body("graph of destinations", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	var dests []int
	for rank := range size {
		if rank%2 == me%2 || me == 0 {
			dests = append(dests, rank)
		}
	}
	if me == 1 {
		dests = append(dests, 3) // twice
	}
	g, err := mpi.GraphOf(world, dests)
	if err != nil {
		return err
	}
	wanted := map[int]string{0: "[0 2]", 1: "[0 1 3]", 2: "[0 2]", 3: "[0 1 1 3]"}[me]
	_, wrong := mpi.GraphOf(world, []int{-1})
	return firstError(want("sources", fmt.Sprint(g.Sources()), wanted),
		want("destinations", fmt.Sprint(g.Destinations()), fmt.Sprint(dests)),
		wantError("rank", wrong, mpi.ErrRank))
})
