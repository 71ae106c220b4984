package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// forcedAlgorithms are how many turns it takes to force every algorithm of the operation that has the most.
const forcedAlgorithms = 10

// TestCollectivesByForcedAlgorithms runs all collectives, by the n-th algorithm of each, between ranks. A third of
// them is enough over TCP in short, as the schedules are those of shared memory. If WEFT_TEST_FORCED is set, which
// takes long, it is on all numbers of ranks, and with 1 MiB. The suite of package coll runs them on more ranks and
// lengths, in simulation.
func TestCollectivesByForcedAlgorithms(t *testing.T) {
	for _, o := range coll.Operations() {
		require.LessOrEqual(t, len(coll.Algorithms(o)), forcedAlgorithms)
	}
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		for turn := range forcedAlgorithms {
			if !testlength.Whole() && fabric == "WEFT_FABRIC=tcp" && turn%4 != 1 {
				continue
			}
			sizes := []int{[]int{2, 4, 5}[turn%3]}
			if forceAll() {
				sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31}
			}
			choices := "WEFT_COLL="
			for _, o := range coll.Operations() {
				all := coll.Algorithms(o)
				choices += fmt.Sprintf("%v:%s,", o, all[turn%len(all)])
			}
			for _, size := range sizes {
				t.Run(fmt.Sprintf("%d/%d", turn, size), func(t *testing.T) {
					together(t, size, forcedForms, fabric, choices)
				})
			}
		}
	})
}

func forceAll() bool { return os.Getenv("WEFT_TEST_FORCED") != "" }

// forcedForms runs every collective, with an operator that does not commute and with one that does, and then
// on several communicators from several goroutines at once.
var forcedForms = body("forcedForms", func(_ context.Context, world *mpi.Comm) error {
	size := world.Size()
	counts := []int{0, 1, size - 1, size + 1, 97}
	if forceAll() {
		const elements = 1 << 20 / 16
		counts = append(counts, elements/size) // 1 MiB of all blocks together
	}
	for _, n := range counts {
		roots := []int{0, size / 2, size - 1}
		if n != 97 && !forceAll() {
			roots = roots[n%2:][:1]
		}
		for _, root := range slices.Compact(roots) {
			if err := errors.Join(everyCollective(world, n, root), commutativeSums(world, n, root),
				specialNumbers(world, n, root)); err != nil {
				return fmt.Errorf("%d elements, root %d: %w", n, root, err)
			}
		}
	}
	const goroutines = 3
	done := make(chan error, goroutines)
	for i := range goroutines {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		go func() {
			n := 10*i + 7
			done <- errors.Join(everyCollective(c, n, i%size), commutativeSums(c, n, i%size))
		}()
	}
	var err error
	for range goroutines {
		err = errors.Join(err, <-done)
	}
	return err
})

// commutativeSums runs the reductions to which operators that commute have algorithms of their own, in place
// and not.
func commutativeSums(c *mpi.Comm, n, root int) error {
	me, size := c.Rank(), c.Size()
	const third = 3
	in, all := make([]int64, n), make([]int64, n*size)
	for i := range all {
		all[i] = int64(i*third + me)
		if i < n {
			in[i] = all[i]
		}
	}
	ranksSum := int64(size * (size - 1) / 2)
	right := func(name string, out []int64, first int) error {
		for i, got := range out {
			if wanted := int64((first+i)*third*size) + ranksSum; got != wanted {
				return fmt.Errorf("%s of %d: element %d is %d, not %d", name, n, i, got, wanted)
			}
		}
		return nil
	}
	op := mpi.Sum[int64]()
	out, counts := make([]int64, n), make([]int, size)
	for rank := range counts {
		counts[rank] = n
	}
	err := mpi.Allreduce(c, in, out, op)
	err = errors.Join(err, right("Allreduce", out, 0))
	copy(out, in)
	err = errors.Join(err, mpi.Allreduce(c, mpi.InPlace[int64](), out, op), right("Allreduce in place", out, 0))
	clear(out)
	if err = errors.Join(err, mpi.Reduce(c, in, out, op, root)); me == root {
		err = errors.Join(err, right("Reduce", out, 0))
	}
	err = errors.Join(err, mpi.ReduceScatterBlock(c, all, out, op), right("ReduceScatterBlock", out, me*n))
	clear(out)
	return errors.Join(err, mpi.ReduceScatter(c, all, out, counts, op), right("ReduceScatter", out, me*n))
}

// specialNumbers reduces numbers that no operator has a neutral element for, or that equal no other: -0 and NaN.
// The results are those of combining element by element, in rank order, whatever the algorithm.
func specialNumbers(c *mpi.Comm, n, root int) error {
	minus, nan := math.Copysign(0, -1), math.NaN()
	// one element each; the ranks' values in turn
	patterns := [][]float64{{minus}, {minus, minus, 0}, {nan, 1, minus}, {1, nan, 2, nan}, {minus, 0}, {1, -1},
		{math.Inf(1), minus}}
	value := func(rank, i int) float64 {
		p := patterns[i%len(patterns)]
		return p[(rank+i/len(patterns))%len(p)]
	}
	return errors.Join(
		special(c, n, root, "Sum", mpi.Sum[float64](), value, sameFloat,
			func(a, b float64) float64 { return a + b }),
		special(c, n, root, "Prod", mpi.Prod[float64](), value, sameFloat,
			func(a, b float64) float64 { return a * b }),
		special(c, n, root, "Max", mpi.Max[float64](), value, sameFloat,
			func(a, b float64) float64 { return max(a, b) }),
		special(c, n, root, "Min", mpi.Min[float64](), value, sameFloat,
			func(a, b float64) float64 { return min(a, b) }),
		special(c, n, root, "MaxLoc", mpi.MaxLoc[float64](), located(value), sameLoc,
			func(a, b mpi.Loc[float64]) mpi.Loc[float64] { return better(a, b, b.Value > a.Value) }),
		special(c, n, root, "MinLoc", mpi.MinLoc[float64](), located(value), sameLoc,
			func(a, b mpi.Loc[float64]) mpi.Loc[float64] { return better(a, b, b.Value < a.Value) }),
	)
}

func sameFloat(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

func sameLoc(a, b mpi.Loc[float64]) bool { return sameFloat(a.Value, b.Value) && a.Index == b.Index }

func located(value func(rank, i int) float64) func(rank, i int) mpi.Loc[float64] {
	return func(rank, i int) mpi.Loc[float64] { return mpi.Loc[float64]{Value: value(rank, i), Index: int64(rank)} }
}

// better combines in rank order: a comes before b, and stays if they are equal.
func better(a, b mpi.Loc[float64], improves bool) mpi.Loc[float64] {
	if improves || math.IsNaN(b.Value) && !math.IsNaN(a.Value) {
		return b
	}
	return a
}

// special carries out every reduction and compares with the operator on single elements.
func special[T any](c *mpi.Comm, n, root int, name string, op mpi.Op[T], value func(rank, i int) T,
	same func(a, b T) bool, combine func(a, b T) T) error {
	me, size := c.Rank(), c.Size()
	in, all := make([]T, n), make([]T, n*size)
	for i := range all {
		if all[i] = value(me, i); i < n {
			in[i] = all[i]
		}
	}
	right := func(call string, out []T, first, ranks int) error {
		for i, got := range out {
			wanted := value(0, first+i)
			for rank := 1; rank < ranks; rank++ {
				wanted = combine(wanted, value(rank, first+i))
			}
			if !same(got, wanted) {
				return fmt.Errorf("%s by %s of %d: element %d is %v, not %v", call, name, n, i, got, wanted)
			}
		}
		return nil
	}
	out, counts := make([]T, n), make([]int, size)
	for rank := range counts {
		counts[rank] = n
	}
	err := errors.Join(mpi.Allreduce(c, in, out, op), right("Allreduce", out, 0, size))
	err = errors.Join(err, mpi.Scan(c, in, out, op), right("Scan", out, 0, me+1))
	err = errors.Join(err, mpi.ReduceScatterBlock(c, all, out, op), right("ReduceScatterBlock", out, me*n, size))
	err = errors.Join(err, mpi.ReduceScatter(c, all, out, counts, op), right("ReduceScatter", out, me*n, size))
	if err = errors.Join(err, mpi.Reduce(c, in, out, op, root)); me == root {
		err = errors.Join(err, right("Reduce", out, 0, size))
	}
	if err = errors.Join(err, mpi.Exscan(c, in, out, op)); me > 0 {
		err = errors.Join(err, right("Exscan", out, 0, me))
	}
	return err
}

var explained = body("explained", func(_ context.Context, world *mpi.Comm) error {
	for range 3 {
		if err := mpi.Bcast(world, make([]int32, 10), 0); err != nil { // explained once
			return err
		}
	}
	return mpi.Allreduce(world, []int64{1}, make([]int64, 1), mpi.Sum[int64]())
})

func TestChoicesOfAlgorithmsAreExplained(t *testing.T) {
	r := launch(t, 3, explained, "WEFT_COLL=explain,bcast:pipelined-chain")
	require.NoError(t, r.Failure, r.Err)
	assert.Regexp(t, `(?m)^weft: \S*collective_forced_test.go:\d+: Bcast on world, 3 ranks, 40 bytes: pipelined-chain, forced by WEFT_COLL`, r.Err)
	assert.Regexp(t, `Allreduce on world, 3 ranks, 8 bytes: direct, chosen of recursive-doubling, rabenseifner.*: predicted .* µs over shared memory.*, [a-z-]+ .* µs\n`, r.Err)
	assert.Equal(t, 2, strings.Count(r.Err, " on world, "), r.Err)

	r = launch(t, 1, explained, "WEFT_COLL=bcast:nonsense")
	require.Error(t, r.Failure)
	assert.Contains(t, r.Err, `Bcast has no algorithm "nonsense"; it has binomial`)
}

// A table names algorithms by ranks and length; what it says wrongly is an error of the start.
func TestTableOfAlgorithms(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.json")
	write := func(text string) {
		require.NoError(t, os.WriteFile(table, []byte(text), 0o600))
	}
	write(`[{"operation": "bcast", "algorithm": "pipelined-chain", "maxRanks": 3, "minBytes": 40}]`)
	r := launch(t, 3, explained, "WEFT_COLL=explain,"+table)
	require.NoError(t, r.Failure, r.Err)
	assert.Contains(t, r.Err, "40 bytes: pipelined-chain, named by the table of WEFT_COLL")
	assert.Contains(t, r.Err, "8 bytes: direct, chosen of")

	write(`[{"operation": "bcast", "algorithm": "nonsense"}]`)
	r = launch(t, 1, explained, "WEFT_COLL="+table)
	require.Error(t, r.Failure)
	assert.Contains(t, r.Err, `table.json: rule 1 of the table: Bcast has no algorithm "nonsense"`)
	r = launch(t, 1, explained, "WEFT_COLL="+table+".none.json")
	require.Error(t, r.Failure)
	assert.Contains(t, r.Err, "no such file")
}

// Operators of users run without the engine's lock: while one takes its time, other goroutines communicate,
// and it may itself look at a communicator and even complete a message.
func TestOperatorsOfUsersDoNotHoldOthersUp(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		anywhere(t, 2, slowOperator, fabric, "WEFT_COLL=allreduce:recursive-doubling")
	})
}

var slowOperator = body("slowOperator", func(_ context.Context, world *mpi.Comm) error {
	const tag = 3
	me := world.Rank()
	entered := make(chan struct{})
	exchanged := make(chan error, 1)
	first := true
	op := mpi.NewOp(func(inout, in []int) {
		if first {
			first = false
			close(entered)
			// It ends when the other goroutine has exchanged a message with the other rank, which is in its
			// operator too.
			if err := <-exchanged; err != nil {
				panic(err)
			}
		}
		for i := range inout {
			inout[i] += in[i]
		}
	}, true)
	go func() {
		<-entered
		got := make([]int, 1)
		_, err := mpi.Sendrecv(world, []int{me}, 1-me, tag, got, 1-me, tag)
		if err == nil {
			err = want("message", got[0], 1-me)
		}
		exchanged <- err
	}()
	in, out := []int{1, 2, 3}, make([]int, 3)
	r, err := mpi.Iallreduce(world, in, out, op)
	if err != nil {
		return err
	}
	for done := false; !done; { // Test makes progress too, and does not carry out the operator itself
		if _, done, err = r.Test(); err != nil {
			return err
		}
	}
	return want("sum", out[2], 6)
})

// Non-blocking collectives make progress in whatever call a rank makes, several at once and in any order of
// completion.
func TestNonBlockingCollectivesMakeProgressInAnyCall(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, progressAnywhere, fabric) })
}

var progressAnywhere = body("progressAnywhere", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	const many, n = 20, 3000
	var requests []mpi.Request
	vectors := make([][]int, many)
	for i := range vectors {
		vectors[i] = make([]int, n)
		for k := range vectors[i] {
			vectors[i][k] = me + i
		}
		r, err := mpi.Iallreduce(world, mpi.InPlace[int](), vectors[i], mpi.Sum[int]())
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	// The last is waited for first, and all the others come to their end meanwhile or in point-to-point
	// calls.
	last := requests[many-1]
	if _, err := last.Wait(); err != nil {
		return err
	}
	got := make([]int, 1)
	if _, err := mpi.Sendrecv(world, []int{me}, (me+1)%size, 0, got, (me+size-1)%size, 0); err != nil {
		return err
	}
	done, err := mpi.Waitsome(requests[:many-1], nil)
	for err == nil && len(done) > 0 {
		done, err = mpi.Waitsome(requests[:many-1], nil)
	}
	if err != nil {
		return err
	}
	for i, v := range vectors {
		if err := want("sum", v[n-1], size*(size-1)/2+size*i); err != nil {
			return err
		}
	}
	return nil
})

// A non-blocking collective ends with the context of its communicator's handle; those that were begun through
// others go on.
func TestNonBlockingCollectiveEndsWithItsContext(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, collectiveWithContext, fabric) })
}

var collectiveWithContext = body("collectiveWithContext", func(ctx context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	if world.Rank() == 1 { // it never calls the collective on c
		return mpi.Barrier(world)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	buf := make([]int, 100_000)
	r, err := mpi.Iallreduce(c.WithContext(ctx), mpi.InPlace[int](), buf, mpi.Sum[int]())
	if err != nil {
		return err
	}
	after(10*time.Millisecond, cancel)
	if _, err := r.Wait(); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the collective ended with %v", err)
	}
	return mpi.Barrier(world)
})

// A rank whose completion handler makes the passes carries out collectives while it computes, and users'
// operators elsewhere.
func TestCollectivesOnCompletionHandlers(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 3, allForms, fabric, "WEFT_CQ_CORES=0")
		ranks(t, 3, progressAnywhere, fabric, "WEFT_CQ_CORES=0")
		// by an algorithm in which both ranks combine
		ranks(t, 2, overlapped, fabric, "WEFT_CQ_CORES=0", "WEFT_COLL=allreduce:recursive-doubling")
	})
}

// overlapped starts a reduction and looks at its result without a call: the handler has to bring it about.
var overlapped = body("overlapped", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	for _, n := range []int{1, 1000} {
		sums := make([]atomic.Int64, n)
		in, out := make([]int64, n), make([]int64, n)
		for i := range in {
			in[i] = int64(me + 1)
		}
		seen := make(chan struct{})
		calls := 0
		op := mpi.NewOp(func(inout, in []int64) {
			for i := range inout {
				inout[i] += in[i]
				sums[i].Store(inout[i])
			}
			if calls++; calls == 1 {
				close(seen)
			}
		}, true)
		r, err := mpi.Iallreduce(world, in, out, op)
		if err != nil {
			return err
		}
		<-seen // the goroutine makes no call
		if _, err := r.Wait(); err != nil {
			return err
		}
		if err := want("sum", out[n-1], 3); err != nil {
			return err
		}
	}
	return nil
})
