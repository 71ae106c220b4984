package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestStartGivenUpAfterAPost(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, startGivenUp, fabric) })
}

// A Start of two ranks is given up when one of them has posted. The next one takes that Post, and the other.
var startGivenUp = body("start given up", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int64](world, 1)
	if err != nil {
		return err
	}
	zero, err := world.Group().Incl(0)
	others, err2 := world.Group().Excl(0)
	if err := firstError(err, err2); err != nil {
		return err
	}
	for round := range 6 {
		first, value := 1+round%2, int64(round+1)
		if world.Rank() == first {
			err = win.Post(zero)
		}
		if err := firstError(err, mpi.Barrier(world)); err != nil {
			return err
		}
		if world.Rank() == 0 {
			err = firstError(gaveUp("Start", win, func(w *mpi.Win[int64]) error { return w.Start(others) }),
				wantError("Put after Start", win.Put([]int64{0}, first, 0), mpi.ErrEpoch))
		}
		if err := firstError(err, mpi.Barrier(world)); err != nil {
			return err
		}
		switch world.Rank() {
		case 0:
			err = firstError(win.Start(others), win.Put([]int64{value}, 1, 0), win.Put([]int64{value}, 2, 0),
				win.Complete())
		case 3 - first:
			err = win.Post(zero)
		}
		if world.Rank() > 0 {
			err = firstError(err, win.Wait(), want("what was put", win.Local()[0], value))
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return win.Free()
})

func TestSharedWindowWithContext(t *testing.T) {
	together(t, 2, sharedWithContext, "WEFT_FABRIC=shm")
}

// Calls on a window of memory that ranks share end with their context, and the window goes on.
var sharedWithContext = body("shared with context", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocateShared[int64](world, 1)
	if err != nil {
		return err
	}
	if world.Rank() == 1 {
		err = win.Lock(1, mpi.Exclusive)
	}
	if err := firstError(err, mpi.Barrier(world)); err != nil {
		return err
	}
	if world.Rank() == 0 {
		err = gaveUp("Lock", win, func(w *mpi.Win[int64]) error { return w.Lock(1, mpi.Exclusive) })
	}
	if err := firstError(err, mpi.Barrier(world)); err != nil {
		return err
	}
	if world.Rank() == 1 {
		err = firstError(win.Unlock(1), win.Lock(1, mpi.Exclusive), win.Unlock(1))
	} else {
		w := win.WithContext(context.Background())
		err = firstError(w.Lock(1, mpi.Exclusive), w.Put([]int64{7}, 1, 0), w.Unlock(1))
		if err == nil {
			err = want("what was put", w.Of(1)[0], 7)
		}
	}
	return firstError(err, mpi.Barrier(world), win.Free())
})
