package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func TestWindowRequestsAndPosts(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, windowRequests, fabric) })
}

// Rank 0 works on the others' parts between Start and Complete, with requests; they see all of it after Wait.
var windowRequests = body("window requests", func(_ context.Context, world *mpi.Comm) error {
	const n = 40_000
	win, err := mpi.WinAllocate[int64](world, n)
	if err != nil {
		return err
	}
	zero, err := world.Group().Incl(0)
	others, err2 := world.Group().Excl(0)
	if err := firstError(err, err2); err != nil {
		return err
	}
	for round := range 3 {
		if world.Rank() > 0 {
			if err := firstError(win.Post(zero), wantError("Post twice", win.Post(zero), mpi.ErrEpoch),
				win.Wait()); err != nil {
				return err
			}
			if got := win.Local()[n-1]; got != int64(3*round+3) {
				return fmt.Errorf("round %d: %d", round, got)
			}
			continue
		}
		if err := startedRound(win, others, n, round); err != nil {
			return err
		}
	}
	return firstError(wantError("Complete without Start", win.Complete(), mpi.ErrEpoch),
		wantError("Wait without Post", win.Wait(), mpi.ErrEpoch), win.Free())
})

func startedRound(win *mpi.Win[int64], others *mpi.Group, n, round int) error {
	if err := win.Start(others); err != nil {
		return err
	}
	block, back := make([]int64, n), make([]int64, n)
	for i := range block {
		block[i] = int64(3*round + 1)
	}
	for _, rank := range []int{1, 2} {
		put, err := win.Rput(block, rank, 0)
		if err != nil {
			return err
		}
		if _, err := put.Wait(); err != nil {
			return err
		}
		if err := win.Flush(rank); err != nil {
			return err
		}
		for range 2 {
			add, err := win.Raccumulate([]int64{1}, rank, n-1, mpi.Sum[int64]())
			if err != nil {
				return err
			}
			if _, err := add.Wait(); err != nil {
				return err
			}
		}
		get, err := win.Rget(back, rank, 0)
		if err != nil {
			return err
		}
		if _, err := get.Wait(); err != nil {
			return err
		}
		if back[0] != block[0] || back[n-1] != block[0]+2 {
			return fmt.Errorf("Rget: %d and %d", back[0], back[n-1])
		}
	}
	return firstError(wantError("Put to a rank that Start has not named", win.Put(block[:1], 0, 0),
		mpi.ErrEpoch), win.Complete())
}

func TestWindowOfARankThatComputes(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 2, computingTarget, fabric, "WEFT_PEER_TIMEOUT=60s")
	})
}

// A target that makes no call sees what is put and added to its part all the same (WEFT_PASSIVE).
var computingTarget = body("computing target", func(_ context.Context, world *mpi.Comm) error {
	const rounds = 20
	win, err := mpi.WinAllocate[int64](world, 2)
	if err != nil {
		return err
	}
	if err := win.LockAll(); err != nil {
		return err
	}
	if world.Rank() == 1 {
		for start := time.Now(); atomic.LoadInt64(&win.Local()[0]) < rounds ||
			atomic.LoadInt64(&win.Local()[1]) < rounds; runtime.Gosched() {
			if time.Since(start) > 2*time.Minute {
				return errors.New("nothing has come")
			}
		}
		return firstError(win.UnlockAll(), win.Free())
	}
	for i := range rounds {
		if err := firstError(win.Put([]int64{int64(i + 1)}, 1, 0), win.Flush(1)); err != nil {
			return err
		}
		if was, err := win.FetchAndOp(1, 1, 1, mpi.Sum[int64]()); err != nil || was != int64(i) {
			return fmt.Errorf("FetchAndOp: %d, %w", was, err)
		}
	}
	return firstError(win.UnlockAll(), win.Free())
})
