package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

func TestRepeatedCalls(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		together(t, 3, repeatedCalls, fabric, fmt.Sprint("CALLS=", testlength.Of(3000, 1000)))
	})
}

// Short collectives of all kinds, each repeated a few times in a random order that is the same at all ranks:
// with other roots, lengths, operators, element types and buffers, in place, and with arguments that are wrong.
// A call that repeats another does what that one did, and one that differs from it does not.
var repeatedCalls = body("repeated calls", func(ctx context.Context, world *mpi.Comm) error {
	rng := rand.New(rand.NewPCG(1, 2))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	within := world.WithContext(ctx)
	for call := range number("CALLS") {
		c := []*mpi.Comm{world, world, within}[rng.IntN(3)]
		kind, n, root := rng.IntN(8), rng.IntN(3), rng.IntN(c.Size())
		for again := range 1 + rng.IntN(3) {
			if err := repeatedCall(c, kind, n, root, call+again); err != nil {
				return fmt.Errorf("call %d of kind %d, %d elements, root %d: %w", call, kind, n, root, err)
			}
		}
	}
	return nil
})

func repeatedCall(c *mpi.Comm, kind, n, root, seed int) error {
	size, me := c.Size(), c.Rank()
	value := func(rank, i int) int64 { return int64(rank*1000+i*10+seed) * 1_000_000_007 }
	vector := func(rank, n int) []int64 {
		v := make([]int64, n)
		for i := range v {
			v[i] = value(rank, i)
		}
		return v
	}
	var all []int64
	for rank := range size {
		all = append(all, vector(rank, n)...)
	}
	sum, top := make([]int64, n), vector(size-1, n)
	for i := range sum {
		for rank := range size {
			sum[i] += value(rank, i)
		}
	}
	in, out := vector(me, n), make([]int64, n)
	same := func(err error, got, want []int64) error {
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%v, not %v", got, want)
		}
		return err
	}
	switch kind {
	case 0:
		return mpi.Barrier(c)
	case 1:
		return same(mpi.Bcast(c, in, root), in, vector(root, n))
	case 2:
		return same(mpi.Allreduce(c, in, out, mpi.Sum[int64]()), out, sum)
	case 3:
		return same(mpi.Allreduce(c, in, out, mpi.Max[int64]()), out, top)
	case 4:
		return same(mpi.Allreduce(c, mpi.InPlace[int64](), in, mpi.Sum[int64]()), in, sum)
	case 5:
		out = make([]int64, n*size)
		return same(mpi.Allgather(c, in, out), out, all)
	case 6:
		in, out = vector(me, n*size), make([]int64, n*size)
		var want []int64
		for rank := range size {
			want = append(want, vector(rank, n*size)[me*n:][:n]...)
		}
		return same(mpi.Alltoall(c, in, out), out, want)
	}
	floats := []float64{float64(me), 0.5} // as long as an integer
	if err := mpi.Allreduce(c, floats, floats[:1], mpi.Sum[float64]()); !errors.Is(err, mpi.ErrCount) {
		return fmt.Errorf("Allreduce of other lengths: %v", err)
	}
	if err := mpi.Bcast(c, floats, size); !errors.Is(err, mpi.ErrRoot) {
		return fmt.Errorf("Bcast by a rank that does not exist: %v", err)
	}
	pair := make([]int64, 2)
	if err := mpi.Allreduce(c, pair[:1], pair[:1], mpi.Op[int64]{}); !errors.Is(err, mpi.ErrOp) {
		return fmt.Errorf("Allreduce without an operator: %v", err)
	}
	all = make([]int64, n*size+size)
	if err := mpi.Alltoall(c, all, all); !errors.Is(err, mpi.ErrBuffer) {
		return fmt.Errorf("Alltoall to where it comes from: %v", err)
	}
	if err := mpi.Allreduce(c, all[1:], all[:len(all)-1], mpi.Sum[int64]()); !errors.Is(err, mpi.ErrBuffer) {
		return fmt.Errorf("Allreduce to almost where it comes from: %v", err)
	}
	sums := make([]float64, 1)
	err := mpi.Allreduce(c, floats[1:], sums, mpi.Sum[float64]())
	if err != nil || sums[0] != 0.5*float64(size) {
		return fmt.Errorf("Allreduce of float64: %v, %w", sums, err)
	}
	return nil
}
