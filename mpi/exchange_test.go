package mpi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// randomExchanges is how many exchanges TestExchange carries out in all: with -args -exchanges 100000 it is a
// long test.
var randomExchanges = flag.Int("exchanges", 240, "random exchanges of TestExchange")

// TestExchange: whatever ranks send to whomever, each message arrives once, in its round, on its communicator;
// also where contexts have ended rounds before.
func TestExchange(t *testing.T) {
	cases := []struct{ ranks, hosts int }{{1, 1}, {2, 1}, {5, 1}, {5, 2}, {6, 3}}
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%d ranks, %d hosts", c.ranks, c.hosts), func(t *testing.T) {
				together(t, c.ranks, exchanges, fabric, fmt.Sprint("EXCHANGE_HOSTS=", c.hosts),
					fmt.Sprint("EXCHANGES=", *randomExchanges/(2*len(cases))))
			})
		}
	})
}

// spreadOverHosts takes the ranks of the world for those of EXCHANGE_HOSTS hosts, in turn.
func spreadOverHosts(world *mpi.Comm) {
	hosts, _ := strconv.Atoi(os.Getenv("EXCHANGE_HOSTS"))
	if hosts < 2 {
		return
	}
	of := make([]int, world.Size())
	for rank := range of {
		of[rank] = rank % hosts
	}
	mpi.SetHosts(world, of)
}

var exchanges = body("exchanges", func(ctx context.Context, world *mpi.Comm) error {
	const communicators = 3
	spreadOverHosts(world)
	total, err := strconv.Atoi(os.Getenv("EXCHANGES"))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, communicators)
	for k := range errs {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		wg.Go(func() {
			for round := range total / communicators {
				if err := randomExchange(ctx, c, k, round); err != nil {
					errs[k] = fmt.Errorf("communicator %d, round %d: %w", k, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
})

// exchangePlan is what ranks do in a round. All ranks draw the same.
type exchangePlan struct {
	lengths [][]int // of the message of a rank to each other one; -1 for none
	cut     bool    // messages are sent in two parts
	ends    bool    // the contexts of all ranks end, at some time
}

func drawExchange(size, communicator, round int) exchangePlan {
	r := rand.New(rand.NewPCG(uint64(communicator), uint64(round)))
	p := exchangePlan{lengths: make([][]int, size), cut: r.IntN(4) == 0, ends: r.IntN(8) == 0}
	for from := range p.lengths {
		degree := r.IntN(size + 1)
		p.lengths[from] = slices.Repeat([]int{-1}, size)
		for _, to := range r.Perm(size)[:degree] {
			longest := []int{4, 4, 100, 100, 600, 2000, 20_000}[r.IntN(7)]
			if r.IntN(200) == 0 {
				longest = 1 << 20 / 8
			}
			p.lengths[from][to] = r.IntN(longest + 1)
		}
	}
	return p
}

// exchangeElement is what a message holds.
func exchangeElement(communicator, round, from, to, i int) int64 {
	return int64(((communicator<<20+round)*100+from)*100+to)<<20 + int64(i)
}

func randomExchange(ctx context.Context, c *mpi.Comm, communicator, round int) error {
	p, me := drawExchange(c.Size(), communicator, round), c.Rank()
	to, want := map[int][]int64{}, map[int][]int64{}
	fill := func(m map[int][]int64, key, from, dest int) {
		if n := p.lengths[from][dest]; n >= 0 {
			m[key] = make([]int64, n)
			for i := range m[key] {
				m[key][i] = exchangeElement(communicator, round, from, dest, i)
			}
		}
	}
	for rank := range c.Size() {
		fill(to, rank, me, rank)
		fill(want, rank, rank, me)
	}
	if p.ends {
		limited, cancel := context.WithCancel(ctx)
		c = c.WithContext(limited)
		defer cancel()
		steps := rand.IntN(1000)
		var ended sync.WaitGroup
		defer ended.Wait()
		ended.Go(func() {
			for range steps {
				runtime.Gosched()
			}
			cancel()
		})
	}
	from, err := exchangeBy(c, to, p.cut, round)
	if p.ends && errors.Is(err, context.Canceled) {
		return nil
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

// exchangeBy calls Exchange in one round and ExchangeFunc in the next. If cut, a message has two parts, which
// arrive in order.
func exchangeBy(c *mpi.Comm, to map[int][]int64, cut bool, round int) (map[int][]int64, error) {
	if !cut && round%2 == 0 {
		return mpi.Exchange(c, to)
	}
	var dests, counts []int
	var buf []int64
	for rank, block := range to {
		dests, counts, buf = append(dests, rank), append(counts, len(block)), append(buf, block...)
		if cut {
			counts[len(counts)-1] = len(block) - len(block)/3
			dests, counts = append(dests, rank), append(counts, len(block)/3)
		}
	}
	from := map[int][]int64{}
	err := mpi.ExchangeFunc(c, dests, counts, buf, func(src int, data []int64) {
		from[src] = append(from[src], data...)
	})
	return from, err
}

// An ExchangeFunc that is repeated allocates nothing, whatever way its messages take.
func TestExchangeFunc_AllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	onFabrics(t, func(t *testing.T, fabric string) {
		hosts := []string{"1", "2"}
		if fabric == "WEFT_FABRIC=tcp" {
			hosts = hosts[1:]
		}
		for _, hosts := range hosts {
			t.Run(hosts+" hosts", func(t *testing.T) {
				ranks(t, 4, exchangeAllocates, fabric, "EXCHANGE_HOSTS="+hosts)
			})
		}
	})
}

var exchangeAllocates = body("exchange allocates", func(_ context.Context, world *mpi.Comm) error {
	spreadOverHosts(world)
	lengths := []int{0, 1, 100}
	if os.Getenv("WEFT_FABRIC") == "shm" {
		lengths = append(lengths, 5000) // over TCP a rendezvous allocates by itself
	}
	for _, n := range lengths {
		dests, counts := []int{0, 1, 2, 3, (world.Rank() + 1) % 4}, []int{n, n / 2, n, n / 3, n}
		buf := make([]float64, 4*n)
		elements, failure := 0, error(nil)
		round := func() {
			err := mpi.ExchangeFunc(world, dests, counts, buf, func(_ int, data []float64) {
				elements += len(data)
			})
			// A rank that is ahead fills the others' memory for unexpected messages.
			failure = firstError(failure, err, mpi.Barrier(world))
		}
		for range 40 {
			round()
		}
		elements = 0
		allocated := allocationsPerRound(round)
		each := 4*counts[world.Rank()] + n
		if err := firstError(failure, want("elements", elements, allocationRounds*each),
			want("allocations", allocated, 0)); err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return nil
})

// A rank that is listed twice gets its messages in order. Values of any type, and arguments that are wrong.
func TestExchange_ValuesAndArguments(t *testing.T) { together(t, 3, exchangeArguments) }

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

// The barrier of an exchange may be complete before a message whose send is complete. The message is received
// all the same.
func TestExchange_MessageAfterTheBarrier(t *testing.T) {
	for _, hosts := range []string{"1", "2"} {
		t.Run(hosts+" hosts", func(t *testing.T) {
			t.Setenv("EXCHANGE_HOSTS", hosts)
			for seed := range uint64(30) {
				mpitest.Run(t, 4, exchangeInAnyOrder, mpitest.Seed(2+seed), mpitest.Config(mpi.Config{
					Settings: map[string]string{"WEFT_RENDEZVOUS": "write"}}))
			}
		})
	}
}

func exchangeInAnyOrder(ctx context.Context, world *mpi.Comm) error {
	spreadOverHosts(world)
	for round := range 10 {
		if err := randomExchange(ctx, world, 0, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// An exchange that some rank does not call ends with its context, and the next one is not disturbed.
func TestExchange_EndsWithItsContext(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, exchangeGivenUp, fabric) })
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
func TestGraphOf(t *testing.T) { together(t, 4, graphOf) }

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
