package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// Operations on mapped memory are refused after Finalize, although an epoch is still open.
func TestWindowAfterFinalize(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { ranks(t, 2, windowAfterFinalize, fabric) })
}

var windowAfterFinalize = launchertest.Body("window after Finalize", func() error {
	world, err := mpi.Init(context.Background())
	if err != nil {
		return err
	}
	win, err := mpi.WinAllocate[int64](world, 8)
	if err != nil {
		return err
	}
	if err := firstError(win.Fence(), operateOnAll(win, nil), win.Fence(), mpi.Finalize()); err != nil {
		return err
	}
	return operateOnAll(win, mpi.ErrFinalized)
})

// Operations on mapped memory are refused once the context of Run has ended.
func TestWindowAfterContextOfRun(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		r := launch(t, 1, windowAfterContextOfRun, fabric)
		require.Contains(t, r.Out, "every operation was refused\n", "%s", r.Err)
	})
}

var windowAfterContextOfRun = launchertest.Body("window after the context of Run", func() error {
	ctx, cancel := context.WithCancel(context.Background())
	return mpi.Run(ctx, func(_ context.Context, world *mpi.Comm) error {
		before, err := mpi.WinAllocate[int64](world, 8)
		if err != nil {
			return err
		}
		if err := firstError(before.Fence(), operateOnAll(before, nil), before.Fence()); err != nil {
			return err
		}
		cancel()
		_, err = mpi.Recv(world, make([]byte, 1), 0, 0) // which ends when the end of the context has had its effect
		if err := wantError("Recv", err, mpi.ErrAborted); err != nil {
			return err
		}
		if err := operateOnAll(before, mpi.ErrAborted); err != nil {
			return err
		}
		fmt.Println("every operation was refused")
		return nil
	})
})

// operateOnAll accesses the part of each rank by each operation, which ends with an error, or without.
func operateOnAll(win *mpi.Win[int64], wanted error) error {
	one := []int64{1}
	for rank := range win.Comm().Size() {
		_, fetched := win.FetchAndOp(1, rank, 0, mpi.Sum[int64]())
		_, swapped := win.CompareAndSwap(0, 1, rank, 0)
		r, rput := win.Rput(one, rank, 0)
		for what, err := range map[string]error{
			"Put":            win.Put(one, rank, 0),
			"Get":            win.Get(make([]int64, 1), rank, 0),
			"PutView":        win.PutView(mpi.Whole(one), rank, win.At(0, 1)),
			"GetView":        win.GetView(mpi.Whole(make([]int64, 1)), rank, win.At(0, 1)),
			"Accumulate":     win.Accumulate(one, rank, 0, mpi.Sum[int64]()),
			"FetchAndOp":     fetched,
			"CompareAndSwap": swapped,
			"Rput":           wait(r, rput),
		} {
			if err := wantError(fmt.Sprintf("%s to rank %d", what, rank), err, wanted); err != nil {
				return err
			}
		}
	}
	return nil
}
