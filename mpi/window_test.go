package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestWindowPutGet(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, windowPutGet, fabric) })
}

// Each rank puts a block of its own to each rank, of sizes that take different ways, and all are found by the
// owner and by every other rank; in windows of memory of either kind.
var windowPutGet = body("window put and get", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{1, 5, 16, 17, 100, 70_000} {
		total := n * world.Size()
		for _, heap := range []bool{false, true} {
			win, err := makeWindow(world, total, heap)
			if err != nil {
				return err
			}
			if err := blocksEverywhere(world, win, n); err != nil {
				return fmt.Errorf("%d elements, heap %t: %w", n, heap, err)
			}
			if err := win.Free(); err != nil {
				return err
			}
		}
	}
	return nil
})

func makeWindow(c *mpi.Comm, n int, heap bool) (*mpi.Win[int64], error) {
	if heap {
		return mpi.WinCreate(c, make([]int64, n))
	}
	return mpi.WinAllocate[int64](c, n)
}

func blocksEverywhere(world *mpi.Comm, win *mpi.Win[int64], n int) error {
	me := world.Rank()
	if err := win.Fence(); err != nil {
		return err
	}
	block := make([]int64, n)
	for rank := range world.Size() {
		for i := range block {
			block[i] = int64(me*1_000_000 + rank*100_000 + i)
		}
		if err := firstError(win.Put(block, rank, me*n), win.FlushLocal(rank)); err != nil {
			return err
		}
	}
	if err := win.Fence(); err != nil {
		return err
	}
	for from := range world.Size() {
		for i, v := range win.Local()[from*n:][:n] {
			if v != int64(from*1_000_000+me*100_000+i) {
				return fmt.Errorf("rank %d's block at rank %d: element %d is %d", from, me, i, v)
			}
		}
	}
	all := make([]int64, n*world.Size())
	for rank := range world.Size() {
		if err := firstError(win.Get(all, rank, 0), win.Flush(rank)); err != nil {
			return err
		}
		for i, v := range all {
			if v != int64(i/n*1_000_000+rank*100_000+i%n) {
				return fmt.Errorf("Get from rank %d: element %d is %d", rank, i, v)
			}
		}
	}
	return win.Fence()
}

func TestWindowLocks(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 4, windowLocks, fabric) })
}

// Under the exclusive lock a rank reads a counter, and writes it back larger: no step is lost, whatever ranks
// do under shared locks meanwhile.
var windowLocks = body("window locks", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int64](world, 2)
	if err != nil {
		return err
	}
	const steps = 50
	v := make([]int64, 2)
	for range steps {
		if err := firstError(win.Lock(0, mpi.Exclusive), win.Get(v, 0, 0), win.Flush(0)); err != nil {
			return err
		}
		v[0]++
		v[1] = -v[0]
		if err := firstError(win.Put(v, 0, 0), win.Unlock(0)); err != nil {
			return err
		}
		if err := firstError(win.Lock(0, mpi.Shared), win.Get(v, 0, 0), win.Unlock(0)); err != nil {
			return err
		}
		if v[0] != -v[1] {
			return fmt.Errorf("under a shared lock the two elements are %v", v)
		}
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if err := firstError(win.LockAll(), win.Get(v, 0, 0), win.UnlockAll()); err != nil {
		return err
	}
	return firstError(want("counter", v[0], int64(steps*world.Size())), win.Free())
})

func TestWindowErrors(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, windowErrors, fabric) })
}

// What is wrong fails at its caller, and changes nothing at the target.
var windowErrors = body("window errors", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int32](world, 10-world.Rank())
	if err != nil {
		return err
	}
	buf := make([]int32, 4)
	one := []int32{1}
	var none *mpi.Win[int32]
	err = firstError(
		wantError("Put to no window", none.Put(one, 0, 0), mpi.ErrWin),
		wantError("Put without an epoch", win.Put(one, 1, 0), mpi.ErrEpoch),
		wantError("Flush without an epoch", win.Flush(1), mpi.ErrEpoch),
		wantError("Unlock without Lock", win.Unlock(1), mpi.ErrEpoch),
		wantError("UnlockAll without LockAll", win.UnlockAll(), mpi.ErrEpoch),
		win.Fence(),
		wantError("Put beyond the end", win.Put(buf, 1, 6), mpi.ErrRange),
		wantError("Get beyond the end", win.Get(buf, 0, 7), mpi.ErrRange),
		wantError("Put before the beginning", win.Put(one, 0, -1), mpi.ErrRange),
		wantError("Put to no rank", win.Put(one, 2, 0), mpi.ErrRank),
		win.Put(nil, 1, 9), win.Put(one, mpi.ProcNull, 77),
		win.Put(one, 1, 8), win.Put(one, 0, 9),
		win.Fence(),
		win.LockAll(),
		wantError("Lock within LockAll", win.Lock(0, mpi.Exclusive), mpi.ErrEpoch),
		wantError("Fence within LockAll", win.Fence(), mpi.ErrEpoch),
		wantError("Free within LockAll", win.Free(), mpi.ErrEpoch),
		win.UnlockAll(),
		wantError("Put after UnlockAll", win.Put(one, 1, 0), mpi.ErrEpoch),
	)
	if err != nil {
		return err
	}
	last := len(win.Local()) - 1
	for i, v := range win.Local() {
		if v != 0 && i != last || v != 1 && i == last {
			return fmt.Errorf("element %d is %d", i, v)
		}
	}
	if err := win.Free(); err != nil {
		return err
	}
	return firstError(
		wantError("Put after Free", win.Put(one, 1, 0), mpi.ErrWin),
		wantError("Free after Free", win.Free(), mpi.ErrWin),
		wantError("a window of fewer than no elements", negativeAt(world, 1), mpi.ErrWin),
	)
})

// negativeAt has one rank ask for a window that cannot be; it fails at all, with the reason at that one.
func negativeAt(world *mpi.Comm, rank int) error {
	n := 1
	if world.Rank() == rank {
		n = -1
	}
	_, err := mpi.WinAllocate[int32](world, n)
	if world.Rank() == rank && errors.Is(err, mpi.ErrCount) {
		return mpi.ErrWin
	}
	return err
}

func TestSharedWindow(t *testing.T) { together(t, 3, sharedWindow, "WEFT_FABRIC=shm") }

// All ranks see each other's parts, and keep doing so.
var sharedWindow = body("shared window", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocateShared[int](world, world.Rank()+1)
	if err != nil {
		return err
	}
	for i := range win.Local() {
		win.Local()[i] = world.Rank()*10 + i
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	for rank := range world.Size() {
		part := win.Of(rank)
		if len(part) != rank+1 || part[rank] != rank*10+rank {
			return fmt.Errorf("part of rank %d: %v", rank, part)
		}
	}
	if err := firstError(mpi.Barrier(world), win.Free()); err != nil {
		return err
	}
	return want("parts after Free", len(win.Of(0)), 0)
})

func TestSharedWindowNeedsSharedMemory(t *testing.T) { together(t, 2, notShared, "WEFT_FABRIC=tcp") }

var notShared = body("no shared window", func(_ context.Context, world *mpi.Comm) error {
	_, err := mpi.WinAllocateShared[int](world, 1)
	return wantError("WinAllocateShared over TCP", err, mpi.ErrWin)
})
