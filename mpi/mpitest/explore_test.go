package mpitest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// receiver receives a message of any source.
type receiver func(world *mpi.Comm, tag int) (source int, err error)

func byRecv(world *mpi.Comm, tag int) (int, error) {
	st, err := mpi.Recv(world, make([]int, 1), mpi.AnySource, tag)
	return st.Source, err
}

func byIrecv(world *mpi.Comm, tag int) (int, error) {
	r, err := mpi.Irecv(world, make([]int, 1), mpi.AnySource, tag)
	if err != nil {
		return 0, err
	}
	st, err := r.Wait()
	return st.Source, err
}

func byProbe(world *mpi.Comm, tag int) (int, error) {
	st, err := mpi.Probe(world, mpi.AnySource, tag)
	if err != nil {
		return 0, err
	}
	_, err = mpi.Recv(world, make([]int, 1), st.Source, st.Tag)
	return st.Source, err
}

func byIprobe(world *mpi.Comm, tag int) (int, error) {
	for {
		st, ok, err := mpi.Iprobe(world, mpi.AnySource, tag)
		if err != nil {
			return 0, err
		}
		if ok {
			_, err := mpi.Recv(world, make([]int, 1), st.Source, st.Tag)
			return st.Source, err
		}
		runtime.Gosched()
	}
}

func byMprobe(world *mpi.Comm, tag int) (int, error) {
	m, st, err := mpi.Mprobe(world, mpi.AnySource, tag)
	if err != nil {
		return 0, err
	}
	_, err = mpi.Mrecv(&m, make([]int, 1))
	return st.Source, err
}

// gather has rank 0 receive so many messages of each other rank.
func gather(receive receiver, messages int) mpitest.Body {
	return func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() > 0 {
			for range messages {
				if err := mpi.Send(world, []int{world.Rank()}, 0, 0); err != nil {
					return err
				}
			}
			return nil
		}
		for range messages * (world.Size() - 1) {
			if _, err := receive(world, 0); err != nil {
				return err
			}
		}
		return nil
	}
}

// gatherAtOnce has rank 0 begin all receives before it waits for them.
func gatherAtOnce(_ context.Context, world *mpi.Comm) error {
	if world.Rank() > 0 {
		return mpi.Send(world, []int{world.Rank()}, 0, 0)
	}
	var list []mpi.Request
	for range world.Size() - 1 {
		r, err := mpi.Irecv(world, make([]int, 1), mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	return mpi.Waitall(list)
}

// rounds gathers twice, with a barrier between.
func rounds(ctx context.Context, world *mpi.Comm) error {
	for range 2 {
		if err := gather(byRecv, 1)(ctx, world); err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}
	return nil
}

// everywhere has all ranks receive a message of each other.
func everywhere(_ context.Context, world *mpi.Comm) error {
	var sends []mpi.Request
	for to := range world.Size() {
		if to != world.Rank() {
			r, err := mpi.Isend(world, []int{1}, to, 0)
			if err != nil {
				return err
			}
			sends = append(sends, r)
		}
	}
	for range sends {
		if _, err := byRecv(world, 0); err != nil {
			return err
		}
	}
	return mpi.Waitall(sends)
}

// farm has rank 0 hand out tasks, each to whom has done one.
func farm(tasks int) mpitest.Body {
	return func(_ context.Context, world *mpi.Comm) error {
		workers := world.Size() - 1
		if world.Rank() > 0 {
			for task := make([]int, 1); ; {
				if _, err := mpi.Recv(world, task, 0, 0); err != nil || task[0] < 0 {
					return err
				}
				if err := mpi.Send(world, task, 0, 0); err != nil {
					return err
				}
			}
		}
		next := 0
		hand := func(to int) error {
			task := []int{next}
			if next++; next > tasks {
				task[0] = -1
			}
			return mpi.Send(world, task, to, 0)
		}
		for w := range workers {
			if err := hand(1 + w); err != nil {
				return err
			}
		}
		for range tasks {
			source, err := byRecv(world, 0)
			if err != nil {
				return err
			}
			if err := hand(source); err != nil {
				return err
			}
		}
		return nil
	}
}

// farmings counts the orders in which results can come, where so many workers are busy and tasks are left.
func farmings(busy, left int) int {
	switch {
	case busy == 0:
		return 1
	case left > 0:
		return busy * farmings(busy, left-1)
	}
	return busy * farmings(busy-1, 0)
}

// named has a receive that names its source between two that do not.
func named(_ context.Context, world *mpi.Comm) error {
	switch world.Rank() {
	case 0:
		for _, source := range []int{mpi.AnySource, 1, mpi.AnySource} {
			if _, err := mpi.Recv(world, make([]int, 1), source, 0); err != nil {
				return err
			}
		}
		return nil
	case 1:
		if err := mpi.Send(world, []int{1}, 0, 0); err != nil {
			return err
		}
	}
	return mpi.Send(world, []int{1}, 0, 0)
}

// tags has two messages of each rank, with tags 0 and 1, in the order of the tags.
func tags(_ context.Context, world *mpi.Comm) error {
	for tag := range 2 {
		if world.Rank() > 0 {
			if err := mpi.Send(world, []int{1}, 0, tag); err != nil {
				return err
			}
			continue
		}
		for range world.Size() - 1 {
			if _, err := byRecv(world, tag); err != nil {
				return err
			}
		}
	}
	return nil
}

// halves gathers in each of two communicators.
func halves(ctx context.Context, world *mpi.Comm) error {
	half, err := world.Split(world.Rank()%2, 0)
	if err != nil {
		return err
	}
	if err := gather(byRecv, 1)(ctx, half); err != nil {
		return err
	}
	return half.Free()
}

// answers has rank 2 send only after rank 0 has received: rank 0 has no choice.
func answers(_ context.Context, world *mpi.Comm) error {
	switch world.Rank() {
	case 0:
		if _, err := byRecv(world, 0); err != nil {
			return err
		}
		if err := mpi.Send(world, []int{1}, 2, 0); err != nil {
			return err
		}
		_, err := byRecv(world, 0)
		return err
	case 2:
		if _, err := mpi.Recv(world, make([]int, 1), 0, 0); err != nil {
			return err
		}
	}
	return mpi.Send(world, []int{1}, 0, 0)
}

// relayed has rank 2 send to rank 0 after it has gathered what the ranks above it send, and rank 1 at once.
func relayed(_ context.Context, world *mpi.Comm) error {
	switch rank := world.Rank(); {
	case rank == 0:
		for range 2 {
			if _, err := byRecv(world, 0); err != nil {
				return err
			}
		}
		return nil
	case rank == 2:
		for range world.Size() - 3 {
			if _, err := byRecv(world, 0); err != nil {
				return err
			}
		}
	case rank > 2:
		return mpi.Send(world, []int{1}, 2, 0)
	}
	return mpi.Send(world, []int{1}, 0, 0)
}

func factorial(n int) int {
	if n < 2 {
		return 1
	}
	return n * factorial(n-1)
}

// orders counts the orders of so many messages of each of some senders.
func orders(senders, messages int) int {
	n := factorial(senders * messages)
	for range senders {
		n /= factorial(messages)
	}
	return n
}

func power(a, n int) int {
	p := 1
	for range n {
		p *= a
	}
	return p
}

func TestExplore(t *testing.T) {
	for _, p := range []struct {
		name  string
		ranks int
		body  mpitest.Body
		want  int // matchings
	}{
		{"nothing to choose", 1, gather(byRecv, 1), 1},
		{"one sender", 2, gather(byRecv, 5), orders(1, 5)},
		{"three senders", 4, gather(byRecv, 1), orders(3, 1)},
		{"two senders of three", 3, gather(byRecv, 3), orders(2, 3)},
		{"two senders of six", 3, gather(byRecv, 6), orders(2, 6)},
		{"Irecv", 4, gather(byIrecv, 1), orders(3, 1)},
		{"Probe", 4, gather(byProbe, 1), orders(3, 1)},
		{"Iprobe", 4, gather(byIprobe, 1), orders(3, 1)},
		{"Mprobe", 4, gather(byMprobe, 1), orders(3, 1)},
		{"Probe of two", 3, gather(byProbe, 2), orders(2, 2)},
		{"at once", 5, gatherAtOnce, orders(4, 1)},
		{"two rounds", 4, rounds, power(orders(3, 1), 2)},
		{"everywhere", 3, everywhere, power(orders(2, 1), 3)},
		{"a farm", 3, farm(5), farmings(2, 5-2)},
		{"a larger farm", 4, farm(5), farmings(3, 5-3)},
		{"a named source", 3, named, 2},
		{"tags", 4, tags, power(orders(3, 1), 2)},
		{"halves", 6, halves, power(orders(2, 1), 2)},
		{"answers", 3, answers, 1},
		{"relayed", 4, relayed, 2},
		{"relayed twice", 5, relayed, 2 * orders(2, 1)},
		{"many", 4, gather(byRecv, 3), orders(3, 3)},
		{"everywhere among four", 4, everywhere, power(orders(3, 1), 4)},
		{"most", 6, gather(byRecv, 1), orders(5, 1)},
		{"two of each of four", 5, gather(byRecv, 2), orders(4, 2)},
		{"two senders of seven", 3, gather(byRecv, 7), orders(2, 7)},
		{"a farm of twelve", 3, farm(14), farmings(2, 14-2)},
	} {
		t.Run(p.name, func(t *testing.T) {
			if p.want > 40 && !testlength.Whole() {
				t.Skip("WEFT_TEST_WHOLE=1 runs it")
			}
			found := mpitest.Explore(t, p.ranks, p.body)
			require.Equal(t, p.want, found.Matchings)
			require.True(t, found.Complete)
		})
	}
}

// late has a wrong program: rank 1 sends to rank 0 at once, and the last rank after a token has come to it
// through all others, and it has computed for a while. Rank 0 fails if the last one is the first that it
// receives from.
func late(receive receiver, fail func(ctx context.Context, world *mpi.Comm) error) mpitest.Body {
	return func(ctx context.Context, world *mpi.Comm) error {
		rank, last := world.Rank(), world.Size()-1
		if rank == 0 {
			source, err := receive(world, 0)
			if err != nil {
				return err
			}
			if source == last {
				if err := fail(ctx, world); err != nil {
					return err
				}
			}
			_, err = receive(world, 0)
			return err
		}
		if rank > 1 {
			if _, err := mpi.Recv(world, make([]int, 1), rank-1, 1); err != nil {
				return err
			}
		}
		if rank == last {
			time.Sleep(20 * time.Millisecond)
		}
		if rank == 1 || rank == last {
			if err := mpi.Send(world, []int{rank}, 0, 0); err != nil {
				return err
			}
		}
		if rank < last {
			return mpi.Send(world, []int{rank}, rank+1, 1)
		}
		return nil
	}
}

// receivers receive from any source, each by other calls.
var receivers = map[string]receiver{"Recv": byRecv, "Irecv": byIrecv, "Probe": byProbe, "Iprobe": byIprobe,
	"Mprobe": byMprobe}

// lateFailures are what is wrong with a late program, by how it shows, and what a report says.
var lateFailures = map[string]struct {
	fail func(ctx context.Context, world *mpi.Comm) error
	want string
}{
	"an error": {func(context.Context, *mpi.Comm) error { return fmt.Errorf("wrong order") },
		"rank 0: wrong order"},
	"a panic": {func(context.Context, *mpi.Comm) error { panic("no good") }, "panic: no good"},
	"Errorf": {func(ctx context.Context, _ *mpi.Comm) error {
		mpitest.T(ctx).Errorf("%d is wrong", 7)
		return nil
	}, "rank 0: 7 is wrong"},
	"a deadlock": {func(_ context.Context, world *mpi.Comm) error {
		_, err := mpi.Recv(world, make([]int, 1), world.Size()-1, 0)
		return err
	}, "deadlock: "},
}

func TestExplore_Wrong(t *testing.T) {
	for receive, by := range receivers {
		for failure, f := range lateFailures {
			t.Run(receive+", "+failure, func(t *testing.T) {
				found, report := mpitest.Exploration(t, 5, late(by, f.fail))
				require.Equal(t, 2, found.Matchings, report)
				require.Equal(t, 1, found.Failed, report)
				require.True(t, found.Complete)
				require.Contains(t, report, f.want)
				require.Regexp(t, "rank 0: "+receive+` at explore_test.go:\d+ takes from rank 4\n`, report)
			})
		}
	}
}

var realRuns = flag.Int("real", 0, "run the wrong programs of TestExplore_Wrong so often over shared memory")

// The wrong programs that Explore finds fail in less than one of a thousand real runs.
func TestExplore_WrongHardlyEverFailsReally(t *testing.T) {
	if *realRuns == 0 {
		t.Skip("-real=1000 runs it")
	}
	for receive, by := range receivers {
		for failure, f := range lateFailures {
			failed, runs := 0, 0
			// One that fails early may be chance, and the machine's load: more runs tell.
			for ; runs < *realRuns || 1000*failed >= runs && runs < 5**realRuns; runs++ {
				fails := func(ctx context.Context, world *mpi.Comm) error {
					if failure == "Errorf" { // which would fail this test
						return errors.New("7 is wrong")
					}
					return f.fail(ctx, world)
				}
				if mpitest.Try(t, 5, late(by, fails), mpitest.Fabric("shm")) != nil {
					failed++
				}
			}
			t.Logf("%s, %s: %d of %d real runs have failed", receive, failure, failed, runs)
			require.Less(t, 1000*failed, runs)
		}
	}
}

func TestExplore_Bound(t *testing.T) {
	found, report := mpitest.Exploration(t, 4, gather(byRecv, 1), mpitest.MaxMatchings(4))
	require.Equal(t, mpitest.Explored{Matchings: 4, Receives: 3}, found)
	require.Equal(t, "the first 4 matchings of 3 receives from any source pass; there are more, which were "+
		"not tried", report)
}
