package mpi_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

func TestWindowAccumulate(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, windowAccumulate, fabric) })
}

// All ranks add to all elements at once, by every call that can, and nothing is lost: of elements of every
// size, in memory that is aligned and that is not.
var windowAccumulate = body("window accumulate", func(_ context.Context, world *mpi.Comm) error {
	return firstError(
		accumulateAll[int8](world, 0), accumulateAll[uint16](world, 0), accumulateAll[int32](world, 0),
		accumulateAll[float32](world, 0), accumulateAll[int64](world, 0), accumulateAll[float64](world, 0),
		accumulateAll[complex64](world, 0), accumulateAll[complex128](world, 0),
		accumulateAll[int32](world, 1), accumulateAll[float32](world, 1))
})

// accumulateAll leaves out the first elements of what is allocated.
func accumulateAll[T mpi.Number](world *mpi.Comm, skip int) error {
	const n, rounds = 300, 4
	win, err := mpi.WinCreate(world, make([]T, n+skip)[skip:])
	if err != nil {
		return err
	}
	ones, was := slices.Repeat([]T{1}, n), make([]T, n)
	if err := win.Fence(); err != nil {
		return err
	}
	for range rounds {
		for rank := range world.Size() {
			if err := firstError(win.Accumulate(ones, rank, 0, mpi.Sum[T]()),
				win.GetAccumulate(ones, was, rank, 0, mpi.Sum[T]()), win.FlushLocal(rank)); err != nil {
				return err
			}
			if _, err := win.FetchAndOp(1, rank, n-1, mpi.Sum[T]()); err != nil {
				return err
			}
		}
	}
	if err := win.Fence(); err != nil {
		return err
	}
	for i, v := range win.Local() {
		wanted := T(0)
		for range 2 * rounds * world.Size() {
			wanted++
		}
		if i == n-1 {
			for range rounds * world.Size() {
				wanted++
			}
		}
		if v != wanted {
			return fmt.Errorf("%T, skip %d: element %d is %v, not %v", v, skip, i, v, wanted)
		}
	}
	return win.Free()
}

func TestWindowOperators(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, windowOperators, fabric) })
}

var windowOperators = body("window operators", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int64](world, 4)
	locs, err2 := mpi.WinAllocate[mpi.Loc[float64]](world, 1)
	bytes, err3 := mpi.WinAllocate[[3]byte](world, 2)
	if err := firstError(err, err2, err3, win.LockAll(), locs.LockAll(), bytes.LockAll()); err != nil {
		return err
	}
	other := 1 - world.Rank()
	fetch := func(v int64, op mpi.Op[int64], was int64) error {
		got, err := win.FetchAndOp(v, other, 1, op)
		return firstError(err, want("what was there", got, was))
	}
	_, foreign := win.FetchAndOp(1, other, 0, mpi.NewOp(func(inout, in []int64) {}, true))
	swapped := func(compare, swap, was int64) error {
		got, err := win.CompareAndSwap(compare, swap, other, 1)
		return firstError(err, want("CompareAndSwap", got, was))
	}
	err = firstError(
		fetch(6, mpi.Replace[int64](), 0), fetch(7, mpi.Prod[int64](), 6), fetch(50, mpi.Max[int64](), 42),
		fetch(3, mpi.Min[int64](), 50), fetch(6, mpi.BXor[int64](), 3), fetch(0, mpi.NoOp[int64](), 5),
		fetch(0, mpi.LAnd[int64](), 5), fetch(9, mpi.LOr[int64](), 0), swapped(7, 8, 1), swapped(1, 8, 1),
		fetch(12, mpi.BAnd[int64](), 8), fetch(1, mpi.BOr[int64](), 8), swapped(9, math.MinInt64, 9),
		wantError("an operator of NewOp", foreign, mpi.ErrOp),
		wantError("the zero operator", win.Accumulate([]int64{1}, other, 0, mpi.Op[int64]{}), mpi.ErrOp),
		wantError("beyond the end", win.Accumulate([]int64{1}, other, 4, mpi.Sum[int64]()), mpi.ErrRange),
		locs.Accumulate([]mpi.Loc[float64]{{Value: 2.5, Index: 3}}, other, 0, mpi.MaxLoc[float64]()),
		locs.Accumulate([]mpi.Loc[float64]{{Value: 1.5, Index: 1}}, other, 0, mpi.MaxLoc[float64]()),
		locs.UnlockAll(),
	)
	if err != nil {
		return err
	}
	read, read2 := make([]int64, 4), make([]int64, 4)
	r, err := win.RgetAccumulate(nil, read2, other, 0, mpi.NoOp[int64]())
	if err := firstError(err, win.GetAccumulate(nil, read, other, 0, mpi.NoOp[int64]())); err != nil {
		return err
	}
	_, err = r.Wait()
	if err := firstError(err, win.Flush(other), want("GetAccumulate", read[1], int64(math.MinInt64)),
		want("RgetAccumulate", read2[1], int64(math.MinInt64))); err != nil {
		return err
	}
	was, err := bytes.CompareAndSwap([3]byte{}, [3]byte{1, 2, 3}, other, 1)
	was2, err2 := bytes.CompareAndSwap([3]byte{}, [3]byte{4, 5, 6}, other, 1)
	return firstError(err, err2, bytes.UnlockAll(), win.UnlockAll(), mpi.Barrier(world),
		want("swap of 3 bytes", was, [3]byte{}), want("second swap", was2, [3]byte{1, 2, 3}),
		want("element", win.Local()[1], int64(math.MinInt64)),
		want("MaxLoc", locs.Local()[0], mpi.Loc[float64]{Value: 2.5, Index: 3}),
		win.Free(), locs.Free(), bytes.Free())
})

func TestWindowLocalAtomics(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, windowLocalAtomics, fabric) })
}

// The owner's own atomics on Local and the others' calls are atomic against each other.
var windowLocalAtomics = body("window local atomics", func(_ context.Context, world *mpi.Comm) error {
	const steps = 2000
	win, err := mpi.WinAllocate[int64](world, 1)
	if err != nil {
		return err
	}
	if err := win.LockAll(); err != nil {
		return err
	}
	for range steps {
		atomic.AddInt64(&win.Local()[0], 1)
		for {
			v := atomic.LoadInt64(&win.Local()[0])
			if got, err := win.CompareAndSwap(v, v+1, world.Rank(), 0); err != nil {
				return err
			} else if got == v {
				break
			}
		}
		if _, err := win.FetchAndOp(1, 1-world.Rank(), 0, mpi.Sum[int64]()); err != nil {
			return err
		}
	}
	return firstError(win.UnlockAll(), mpi.Barrier(world), want("sum", win.Local()[0], int64(3*steps)),
		win.Free())
})

func TestWindowLocalAtomicsOfAnyAddress(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 2, localAtomicsOfAnyAddress, fabric) })
}

// The same for elements of 4 bytes that do not begin at a multiple of 8. Another goroutine of each rank calls.
var localAtomicsOfAnyAddress = body("local atomics of any address", func(_ context.Context,
	world *mpi.Comm) error {
	steps := testlength.Of(5_000, 1_500)
	shared, err := mpi.Alloc[int32](2)
	if err != nil {
		return err
	}
	for _, mem := range [][]int32{shared, make([]int32, 2)} {
		win, err := mpi.WinCreate(world, mem[1:])
		if err := firstError(err, win.LockAll(), mpi.Barrier(world)); err != nil {
			return err
		}
		over := make(chan error, 1)
		go func() {
			var err error
			for range steps {
				err = firstError(err, win.Accumulate([]int32{1}, 0, 0, mpi.Sum[int32]()),
					win.Accumulate([]int32{1}, 1, 0, mpi.Sum[int32]()))
			}
			over <- firstError(err, win.FlushAll(), mpi.Barrier(world))
		}()
		added := int32(0)
		for ; len(over) == 0; added++ {
			atomic.AddInt32(&win.Local()[0], 1)
		}
		if err := firstError(<-over, want("what was added", win.Local()[0], added+int32(2*steps)), win.UnlockAll(),
			win.Free()); err != nil {
			return err
		}
	}
	return nil
})
