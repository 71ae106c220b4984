package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

func TestAlltoallView(t *testing.T) {
	for _, size := range testlength.InShort([]int{1, 2, 5}, []int{5}) {
		for _, env := range [][]string{{"WEFT_FABRIC=shm"}, {"WEFT_FABRIC=tcp"}, {"WEFT_CHECK=1"}} {
			t.Run(fmt.Sprint(size, " ranks ", env), func(t *testing.T) { together(t, size, alltoallViews, env...) })
		}
	}
	t.Run("20 ranks", func(t *testing.T) {
		testlength.NotInShort(t)
		together(t, 20, alltoallViews, "WEFT_PEER_TIMEOUT=60s")
	})
}

// Views of any shape and length, most of them another for each rank, reach the ranks for which they are, and
// nothing else is touched.
var alltoallViews = body("alltoall of views", func(_ context.Context, world *mpi.Comm) error {
	lengths := []int{0, 1, 63, 513, 3000, 9000, 40_000}
	if world.Size() > 5 {
		lengths = lengths[:4]
	}
	for round := range testlength.Of(8, 2) {
		if err := alltoallOfShapes(world, round, lengths); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if os.Getenv("WEFT_CHECK") != "" {
		return nil // would count the mistakes
	}
	return alltoallRefused(world)
})

func alltoallOfShapes(world *mpi.Comm, round int, lengths []int) error {
	me, size := world.Rank(), world.Size()
	shared := rand.New(rand.NewPCG(uint64(round), 6)) // the same lengths at every rank
	between := make([][]int, size)
	for from := range between {
		for range size {
			between[from] = append(between[from], lengths[shared.IntN(len(lengths))])
		}
	}
	own := rand.New(rand.NewPCG(uint64(round), uint64(7+me)))
	var in, out []mpi.View[int]
	var data, got, expected [][]int
	for rank := range size {
		n := between[me][rank]
		v, mem, order := shapeOf(own, n)
		for i, at := range order {
			mem[at] = ofAlltoall(me, rank, i)
		}
		in, data = append(in, v), append(data, mem)
		v, mem, order = shapeOf(own, between[rank][me])
		want := slices.Clone(mem)
		for i, at := range order {
			want[at] = ofAlltoall(rank, me, i)
		}
		out, got, expected = append(out, v), append(got, mem), append(expected, want)
	}
	sent := make([][]int, size)
	for i := range data {
		sent[i] = slices.Clone(data[i])
	}
	before := make([][]int, size)
	for i := range got {
		before[i] = slices.Clone(got[i])
	}
	p, err := mpi.AlltoallViewInit(world, in, out)
	if err != nil {
		return err
	}
	for form, call := range []func() error{
		func() error { return mpi.AlltoallView(world, in, out) },
		func() error { return waited(mpi.IalltoallView(world, in, out)) },
		func() error { return waited(p.Start()) },
		func() error { return waited(p.Start()) },
	} {
		for i := range got {
			copy(got[i], before[i])
		}
		if err := call(); err != nil {
			return err
		}
		for rank := range size {
			if !sameMemory(got[rank], expected[rank]) || !sameMemory(data[rank], sent[rank]) {
				return fmt.Errorf("form %d: %d elements from rank %d", form, between[rank][me], rank)
			}
		}
	}
	return p.Free()
}

func ofAlltoall(from, to, i int) int { return from*1_000_000_000 + to*1_000_000 + i }

// shapeOf is a view of n elements of new memory, and where they are there, in order.
func shapeOf(r *rand.Rand, n int) (v mpi.View[int], mem []int, order []int) {
	mem = make([]int, 3*n+1)
	for i := range mem {
		mem[i] = -1 - i
	}
	switch r.IntN(4) {
	case 0: // contiguous
		for i := range n {
			order = append(order, n+i)
		}
		return mpi.Strided(mem[n:], 1, n, n), mem, order
	case 1: // every third, backwards
		for i := range n {
			order = append(order, 3*(n-1-i))
		}
		return mpi.Strided(mem, n, 1, -3), mem, order
	case 2: // a column of two
		for i := range n {
			order = append(order, 3*i+1)
		}
		return mpi.Sub(mem, []int{n, 3}, []int{0, 1}, []int{n, 1}), mem, order
	}
	order = r.Perm(len(mem))[:n]
	return mpi.Indexed(mem, order, nil), mem, order
}

// What does not fit is refused before anything is sent.
func alltoallRefused(world *mpi.Comm) error {
	data := make([]int, 10)
	views := func(v mpi.View[int]) []mpi.View[int] { return slices.Repeat([]mpi.View[int]{v}, world.Size()) }
	good, bad := views(mpi.Strided(data, 2, 1, 3)), views(mpi.Strided(data, 3, 1, 5))
	call := func(what string, in, out []mpi.View[int], wanted error) error {
		return wantError(what, mpi.AlltoallView(world, in, out), wanted)
	}
	_, begun := mpi.IalltoallView(world, bad, good)
	_, setUp := mpi.AlltoallViewInit(world, good[1:], good)
	cart, err := world.Cart([]int{world.Size()}, []bool{true}, false)
	if err != nil {
		return err
	}
	two := []mpi.View[int]{good[0], good[0]}
	neighbors := mpi.NeighborAlltoallView(cart, two[1:], two)
	_, neighborsBegun := mpi.IneighborAlltoallView(cart, two, []mpi.View[int]{good[0], bad[0]})
	_, neighborsSetUp := mpi.NeighborAlltoallViewInit((*mpi.Graph)(nil), two, two)
	return firstError(
		wantMisuse("IalltoallView", begun, mpi.ErrCount), wantMisuse("AlltoallViewInit", setUp, mpi.ErrCount),
		wantMisuse("NeighborAlltoallView", neighbors, mpi.ErrCount),
		wantMisuse("IneighborAlltoallView", neighborsBegun, mpi.ErrCount),
		wantMisuse("NeighborAlltoallViewInit", neighborsSetUp, mpi.ErrComm),
		wantMisuse("AlltoallView", mpi.AlltoallView(nil, good, good), mpi.ErrComm),
		call("input that does not fit", bad, good, mpi.ErrCount),
		call("output that does not fit", good, bad, mpi.ErrCount),
		call("an element twice", good, views(mpi.Strided(data, 2, 1, 0)), mpi.ErrBuffer),
		call("too few views", good[1:], good, mpi.ErrCount),
		call("too many views", good, append(good, good...), mpi.ErrCount),
		call("another length for this rank itself", good, views(mpi.Strided(data, 3, 1, 3)), mpi.ErrCount),
		wantError("elements with pointers", mpi.AlltoallView(world, make([]mpi.View[string], world.Size()),
			make([]mpi.View[string], world.Size())), mpi.ErrType),
	)
}

func TestAlltoallViewOfAnotherLength(t *testing.T) {
	for _, env := range []string{"WEFT_FABRIC=shm", "WEFT_FABRIC=tcp"} {
		t.Run(env, func(t *testing.T) { together(t, 2, alltoallLengthsDiffer, env) })
	}
}

// A message that is longer or shorter than its receiver expects is an error there, at any length.
var alltoallLengthsDiffer = body("alltoall of other lengths", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{1, 1000, 100_000} {
		for _, more := range []int{-1, 1} {
			c, err := world.Dup()
			if err != nil {
				return err
			}
			data, got := make([]int, 2*n+4), make([]int, 2*n+4)
			in, out := make([]mpi.View[int], 2), make([]mpi.View[int], 2)
			other := 1 - c.Rank()
			in[other], out[other] = mpi.Strided(data, n, 1, 2), mpi.Strided(got, n, 1, 2)
			if c.Rank() == 0 {
				in[other] = mpi.Strided(data, n+more, 1, 2)
			}
			err = mpi.AlltoallView(c, in, out)
			if c.Rank() == 1 {
				err = wantError(fmt.Sprint(n+more, " elements for ", n), err, mpi.ErrCount)
			}
			if err := firstError(err, mpi.Barrier(world), c.Free()); err != nil {
				return err
			}
		}
	}
	return nil
})
