package mpitest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

var (
	pairs  = flag.Int("pairs", 54, "number of pairs of runs that TestSeed_Repeats compares")
	traces = flag.String("traces", "", "`file` that TestSeed_Repeats writes its traces to, which are those of another build")
)

// open are programs in which MPI leaves much open.
var open = []struct {
	name string
	body mpitest.Body
}{
	{"wildcards", wildcards},
	{"requests", requests},
	{"probes", probes},
	{"collectives", collectives},
	{"windows", windows},
	{"communicators", communicators},
	{"goroutines", goroutines},
	{"alike", alike},
	{"pipeline", pipeline},
}

// wildcards has rank 0 answer the others in the order in which they come, with messages of several sizes.
func wildcards(_ context.Context, world *mpi.Comm) error {
	const rounds = 5
	if world.Rank() > 0 {
		for i := range rounds {
			if err := mpi.Send(world, make([]byte, 1+i*i*700*world.Rank()), 0, i); err != nil {
				return err
			}
			if _, err := mpi.Recv(world, make([]byte, 1), 0, mpi.AnyTag); err != nil {
				return err
			}
		}
		return nil
	}
	buf := make([]byte, 1<<20)
	for range rounds * (world.Size() - 1) {
		st, err := mpi.Recv(world, buf, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if err := mpi.Send(world, buf[:1], st.Source, st.Tag); err != nil {
			return err
		}
	}
	return nil
}

// requests has each rank exchange messages with all others, and take them as they are complete.
func requests(_ context.Context, world *mpi.Comm) error {
	var list []mpi.Request
	n := world.Size()
	for i := range 3 * n {
		size := 1 + i*i*i
		in, err := mpi.Irecv(world, make([]byte, size), i%n, i/n)
		if err != nil {
			return err
		}
		out, err := mpi.Isend(world, make([]byte, 1+(world.Rank()+i/n*n)*(world.Rank()+i/n*n)*(world.Rank()+i/n*n)),
			i%n, i/n)
		if err != nil {
			return err
		}
		list = append(list, in, out)
	}
	for some := true; some; some = !some {
		if _, _, err := mpi.Waitany(list); err != nil {
			return err
		}
		if _, _, _, err := mpi.Testany(list); err != nil {
			return err
		}
	}
	for done := []int(nil); ; {
		var err error
		if done, err = mpi.Waitsome(list, done[:0]); err != nil || len(done) == 0 {
			return err
		}
		me := world.Rank()
		if _, err := mpi.Sendrecv(world, done, me, 99, make([]int, len(done)), me, 99); err != nil {
			return err
		}
	}
}

// probes has each rank look for messages before it receives them.
func probes(_ context.Context, world *mpi.Comm) error {
	n := world.Size()
	var sends []mpi.Request
	for to := range n {
		if to != world.Rank() {
			r, err := mpi.Isend(world, make([]int, world.Rank()+1), to, world.Rank())
			if err != nil {
				return err
			}
			sends = append(sends, r)
		}
	}
	for got := 0; got < n-1; {
		st, ok, err := mpi.Iprobe(world, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if !ok && got%2 == 0 {
			if st, err = mpi.Probe(world, mpi.AnySource, mpi.AnyTag); err != nil {
				return err
			}
			ok = true
		}
		if !ok {
			continue
		}
		if _, err := mpi.Recv(world, make([]int, st.Tag+1), st.Source, st.Tag); err != nil {
			return err
		}
		got++
	}
	return mpi.Waitall(sends)
}

func collectives(_ context.Context, world *mpi.Comm) error {
	sum, all := make([]int, 3000), make([]int, 3*world.Size())
	request, err := mpi.Iallreduce(world, make([]int, 3000), sum, mpi.Sum[int]())
	if err != nil {
		return err
	}
	if err := mpi.Allgather(world, make([]int, 3), all); err != nil {
		return err
	}
	if _, err := request.Wait(); err != nil {
		return err
	}
	if err := mpi.Bcast(world, sum, world.Size()-1); err != nil {
		return err
	}
	return mpi.Barrier(world)
}

func windows(_ context.Context, world *mpi.Comm) error {
	w, err := mpi.WinAllocate[int](world, 4)
	if err != nil {
		return err
	}
	old := make([]int, 1)
	for range 3 {
		target := (world.Rank() + 1) % world.Size()
		if err := w.Lock(target, true); err != nil {
			return err
		}
		if old[0], err = w.FetchAndOp(1, target, 0, mpi.Sum[int]()); err != nil {
			return err
		}
		if err := w.Unlock(target); err != nil {
			return err
		}
		if _, err := mpi.Sendrecv(world, old, target, 0, make([]int, 1), mpi.AnySource, 0); err != nil {
			return err
		}
	}
	return w.Free()
}

func communicators(_ context.Context, world *mpi.Comm) error {
	var twin *mpi.Comm
	r, err := world.Idup(&twin)
	if err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	half, err := twin.Split(world.Rank()%2, 0)
	if err != nil {
		return err
	}
	for _, c := range []*mpi.Comm{half, twin} {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
	}
	return nil
}

// goroutines has each rank exchange messages with its neighbors in several goroutines.
func goroutines(_ context.Context, world *mpi.Comm) error {
	n, results := world.Size(), make(chan error)
	next, previous := (world.Rank()+1)%n, (world.Rank()+n-1)%n
	const several = 4
	for tag := range several {
		go func() {
			var err error
			for i := 0; i < 3 && err == nil; i++ {
				_, err = mpi.Sendrecv(world, make([]int, 1+i*100*tag), next, tag, make([]int, 1+i*100*tag), previous, tag)
			}
			results <- err
		}()
	}
	var errs error
	for range several {
		errs = errors.Join(errs, <-results)
	}
	return errs
}

// alike has rank 0 take messages of all others in goroutines that all do the same.
func alike(_ context.Context, world *mpi.Comm) error {
	const each = 4
	if world.Rank() > 0 {
		for i := range each {
			if err := mpi.Send(world, []int{world.Rank(), i}, 0, 0); err != nil {
				return err
			}
		}
		return nil
	}
	var all sync.WaitGroup
	errs := make([]error, each)
	for i := range errs {
		all.Go(func() {
			for from := 1; from < world.Size() && errs[i] == nil; from++ {
				var st mpi.Status
				if st, errs[i] = mpi.Recv(world, make([]int, 2), mpi.AnySource, 0); errs[i] == nil {
					// who has received from whom shows in the trace
					mine := make([]byte, 1+10*i+st.Source)
					_, errs[i] = mpi.Sendrecv(world, mine, 0, 1+i, make([]byte, len(mine)), 0, 1+i)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// pipeline passes numbers through all ranks; in each one goroutine receives them, one adds and one sends.
func pipeline(_ context.Context, world *mpi.Comm) error {
	const numbers = 12
	in, out := make(chan int, 2), make(chan int)
	errs := make(chan error, 2)
	go func() {
		defer close(in)
		for i := range numbers {
			buf := []int{i}
			if world.Rank() > 0 {
				if _, err := mpi.Recv(world, buf, world.Rank()-1, 0); err != nil {
					errs <- err
					return
				}
			}
			in <- buf[0]
		}
		errs <- nil
	}()
	go func() {
		defer close(out)
		for x := range in {
			out <- x + 1
		}
	}()
	go func() {
		for x := range out {
			if world.Rank() == world.Size()-1 {
				continue
			}
			if err := mpi.Send(world, []int{x}, world.Rank()+1, 0); err != nil {
				errs <- err
			}
		}
		errs <- nil
	}()
	return errors.Join(<-errs, <-errs)
}

// A seed repeats each call and each match of each rank, and the turns, also on another number of processors.
func TestSeed_Repeats(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	different := map[string]map[uint64]bool{}
	var all strings.Builder
	for i := range *pairs {
		p := open[i%len(open)]
		n, seed := 2+i/len(open)%4, uint64(i)
		runtime.GOMAXPROCS(1 + i%2)
		calls, turns := mpitest.Traced(t, n, p.body, seed)
		runtime.GOMAXPROCS(2 - i/2%2)
		again, turnsAgain := mpitest.Traced(t, n, p.body, seed)
		require.Empty(t, firstDifference(calls, again), "%s, %d ranks, seed %d", p.name, n, seed)
		require.Equal(t, turns, turnsAgain, "%s, %d ranks, seed %d", p.name, n, seed)
		fmt.Fprintf(&all, "%s, %d ranks, seed %d, turns %x\n%s", p.name, n, seed, turns, calls)
		if different[p.name] == nil {
			different[p.name] = map[uint64]bool{}
		}
		different[p.name][turns] = true
	}
	for name, turns := range different {
		require.Greater(t, len(turns), 1, fmt.Sprint(name, ": every seed has the same turns"))
	}
	if *traces != "" {
		require.NoError(t, os.WriteFile(*traces, []byte(all.String()), 0o644))
	}
}

// firstDifference has the lines around the first one in which two texts differ; empty if they are equal.
func firstDifference(a, b string) string {
	if a == b {
		return ""
	}
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	around := func(lines []string) string {
		return strings.Join(lines[min(max(0, i-3), len(lines)):min(i+3, len(lines))], "\n")
	}
	return around(x) + "\n\nand then\n\n" + around(y)
}
