package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestCollectives compares each collective with what it is defined as, for worlds of several sizes, roots and
// lengths.
func TestCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { anywhere(t, n, collectives) })
	}
}

// value is the element i of what a rank puts in.
func value(rank, i int) int64 { return int64(rank+1)*1_000_003 + int64(i)*17 }

var collectives = body("collectives", func(_ context.Context, world *mpi.Comm) error {
	for _, count := range []int{0, 1, 5, 1000, 70_000} {
		for root := range world.Size() {
			if err := rooted(world, count, root); err != nil {
				return fmt.Errorf("count %d, root %d: %w", count, root, err)
			}
		}
		if err := rootless(world, count); err != nil {
			return fmt.Errorf("count %d: %w", count, err)
		}
	}
	return nil
})

func rooted(world *mpi.Comm, count, root int) error {
	me, size := world.Rank(), world.Size()
	in, out := make([]int64, count), make([]int64, count)
	for i := range in {
		in[i] = value(me, i)
	}
	copy(out, in)
	if err := mpi.Bcast(world, out, root); err != nil {
		return err
	}
	for i := range out {
		if err := want("Bcast", out[i], value(root, i)); err != nil {
			return err
		}
	}
	if err := mpi.Reduce(world, in, out, mpi.Sum[int64](), root); err != nil {
		return err
	}
	for i := range out {
		if err := want("Reduce's input", in[i], value(me, i)); err != nil {
			return err
		}
		if me == root {
			var sum int64
			for r := range size {
				sum += value(r, i)
			}
			if err := want("Reduce", out[i], sum); err != nil {
				return err
			}
		}
	}
	copy(out, in)
	at := in
	if me == root {
		at = mpi.InPlace[int64]()
	}
	if err := mpi.Reduce(world, at, out, mpi.Max[int64](), root); err != nil {
		return err
	}
	if me == root {
		for i := range out {
			if err := want("Reduce in place", out[i], value(size-1, i)); err != nil {
				return err
			}
		}
	}
	var all []int64
	if me == root {
		all = make([]int64, count*size)
	}
	if err := mpi.Gather(world, in, all, root); err != nil {
		return err
	}
	for i := range all {
		if err := want("Gather", all[i], value(i/count, i%count)); err != nil {
			return err
		}
	}
	return nil
}

// word is an element whose product does not commute: a map of three letters onto three.
type word [3]uint8

func compose(inout, in []word) {
	for i := range inout {
		a, b := inout[i], in[i]
		inout[i] = word{b[a[0]], b[a[1]], b[a[2]]}
	}
}

func rootless(world *mpi.Comm, count int) error {
	me, size := world.Rank(), world.Size()
	x := make([]float64, count)
	for i := range x {
		x[i] = float64(me) + float64(i)/8
	}
	if err := mpi.Allreduce(world, mpi.InPlace[float64](), x, mpi.Sum[float64]()); err != nil {
		return err
	}
	for i := range x {
		if err := want("Allreduce", x[i], float64(size*(size-1))/2+float64(size*i)/8); err != nil {
			return err
		}
	}
	letters := func(rank, i int) word {
		return [...]word{{1, 2, 0}, {1, 0, 2}, {0, 2, 1},
			{2, 0, 1}}[(rank*3+i)%4]
	}
	in, out := make([]word, count), make([]word, count)
	for i := range in {
		in[i] = letters(me, i)
	}
	if err := mpi.Allreduce(world, in, out, mpi.NewOp(compose, false)); err != nil {
		return err
	}
	for i := range out {
		product := []word{letters(0, i)}
		for r := 1; r < size; r++ {
			compose(product, []word{letters(r, i)})
		}
		if err := want("Allreduce in the order of ranks", out[i], product[0]); err != nil {
			return err
		}
	}
	loc := []mpi.Loc[float32]{{Value: float32(me % 2), Index: int64(me)}}
	if err := mpi.Allreduce(world, mpi.InPlace[mpi.Loc[float32]](), loc, mpi.MaxLoc[float32]()); err != nil {
		return err
	}
	return want("MaxLoc", loc[0], mpi.Loc[float32]{Value: float32(min(1, size-1)),
		Index: int64(min(1, size-1))})
}
