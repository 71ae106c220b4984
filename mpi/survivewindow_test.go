package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// struckEpochs are the epochs of windows in which ranks die.
var struckEpochs = []strike{
	{"WinFence", inWindow(func(w *mpi.Win[int64]) error {
		return firstError(w.Fence(), w.Put([]int64{1}, neighbor(w.Comm()), 0), w.Fence(),
			w.Put(large()[:1000], neighbor(w.Comm()), 0), w.Fence())
	})},
	{"WinPostStart", inWindow(func(w *mpi.Win[int64]) error {
		c := w.Comm()
		left, err := c.Group().Incl((c.Rank() + c.Size() - 1) % c.Size())
		right, err2 := c.Group().Incl(neighbor(c))
		if err = firstError(err, err2, w.Post(left), w.Start(right)); err != nil {
			return err
		}
		return firstError(w.Put([]int64{1}, neighbor(c), 0), w.Complete(), w.Wait())
	})},
	{"WinPostStartAll", inWindow(func(w *mpi.Win[int64]) error {
		g := w.Comm().Group()
		if err := firstError(w.Post(g), w.Start(g)); err != nil {
			return err
		}
		return firstError(w.Put([]int64{1}, neighbor(w.Comm()), 0), w.Complete(), w.Wait())
	})},
	{"WinLock", inWindow(func(w *mpi.Win[int64]) error {
		for range 5 {
			if err := w.Lock(0, true); err != nil {
				return err
			}
			err := w.Put([]int64{1}, 0, 0)
			if err = firstError(err, w.Unlock(0)); err != nil {
				return err
			}
		}
		return nil
	})},
	{"WinLockAll", inWindow(func(w *mpi.Win[int64]) error {
		return inLockAll(w, func(rank int) error {
			return firstError(w.Put([]int64{1}, rank, 1), second(w.FetchAndOp(1, rank, 0, mpi.Sum[int64]())))
		})
	})},
	{"WinFlush", inWindow(func(w *mpi.Win[int64]) error {
		return inLockAll(w, func(rank int) error {
			got := []int64{0}
			return firstError(w.Put([]int64{1}, rank, 2), w.Flush(rank), w.Get(got, rank, 2),
				w.FlushLocal(rank), w.FlushAll())
		})
	})},
	{"WinRequests", inWindow(func(w *mpi.Win[int64]) error {
		return inLockAll(w, func(rank int) error {
			put, err := w.Rput(large()[:1000], rank, 0)
			get, err2 := w.Rget(make([]int64, 500), rank, 100)
			add, err3 := w.Raccumulate([]int64{1}, rank, 7, mpi.Sum[int64]())
			return firstError(err, err2, err3, mpi.Waitall([]mpi.Request{put, get, add}))
		})
	})},
	{"WinPassive", inWindow(func(w *mpi.Win[int64]) error {
		if w.Comm().Rank() == 0 {
			time.Sleep(time.Millisecond) // a target that makes no calls
			return nil
		}
		return inLockAll(w, func(int) error {
			return firstError(w.Accumulate([]int64{1}, 0, 0, mpi.Sum[int64]()), w.Flush(0))
		})
	})},
}

// inWindow makes a window, uses it, and frees it, whatever happens.
func inWindow(use func(w *mpi.Win[int64]) error) func(c *mpi.Comm) error {
	return func(c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 1000)
		if err != nil {
			return err
		}
		if err = use(w); err != nil {
			err = errors.Join(err, w.Comm().Revoke()) // others may wait for this rank
		}
		return errors.Join(err, w.Free())
	}
}

// inLockAll works on every rank's part within LockAll.
func inLockAll(w *mpi.Win[int64], work func(rank int) error) error {
	err := w.LockAll()
	for rank := range w.Comm().Size() {
		if err == nil {
			err = work(rank)
		}
	}
	return errors.Join(err, w.UnlockAll())
}

func neighbor(c *mpi.Comm) int { return (c.Rank() + 1) % c.Size() }

// A rank that dies with a lock fails the others' Lock on that part; other parts go on. Nobody needs Revoke.
// Ranks that are posted to and started by ranks that are left leave their epochs, and Free does not wait.
func TestWindowOfAFailedRank(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launchertest.RunSurviving(t, launchertest.Ranks(4, windowOutlivesRank, fabric))
		require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s", r.Err)
		require.Contains(t, r.Out, "rank 0 is done")
		require.Contains(t, r.Out, "rank 1 is done")
		require.Contains(t, r.Out, "rank 2 is done")
	})
}

var windowOutlivesRank = body("window outlives rank", func(_ context.Context, world *mpi.Comm) error {
	w, err := mpi.WinAllocate[int64](world, 10)
	if err != nil {
		return err
	}
	rank := world.Rank()
	if rank == 3 {
		// rank 3 dies when it holds the lock of rank 0, and has posted to nobody
		if err := firstError(w.Lock(0, true), w.Put([]int64{3}, 0, 0), w.Flush(0), mpi.Barrier(world)); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // rank 1 waits for the lock
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if rank == 1 {
		if err := wantError("Lock", w.Lock(0, true), mpi.ErrProcFailed); err != nil {
			return err
		}
	}
	for len(world.Failed()) == 0 {
		time.Sleep(time.Millisecond)
	}
	// what needs nothing of rank 3
	err = firstError(w.Lock(rank, true), w.Put([]int64{1}, rank, 1), w.Unlock(rank))
	if rank == 0 {
		if errors.Is(err, mpi.ErrProcFailed) { // rank 3 died with this lock
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("own lock: %w", err)
	}
	// 0 posts to 2 and 3, and 2 starts 0 and 3: no Wait depends on more than is left
	switch rank {
	case 0:
		g, err := world.Group().Incl(3, 2)
		if err := firstError(err, wantError("Post", w.Post(g), mpi.ErrProcFailed),
			wantError("Wait", w.Wait(), mpi.ErrProcFailed)); err != nil {
			return err
		}
	case 2:
		g, err := world.Group().Incl(3, 0)
		if err := firstError(err, wantError("Start", w.Start(g), mpi.ErrProcFailed)); err != nil {
			return err
		}
	}
	if err := wantError("Fence", w.Fence(), mpi.ErrProcFailed); err != nil {
		return err
	}
	if err := wantError("Free", w.Free(), mpi.ErrProcFailed); err != nil {
		return err
	}
	if err := wantError("Put after Free", w.Put([]int64{1}, 0, 0), mpi.ErrWin); err != nil {
		return err
	}
	fmt.Printf("rank %d is done\n", rank)
	return nil
})

// Revoke of a window's communicator ends a wait for a lock, and for a Post.
func TestRevokedWindow(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 3, revokedWindow, fabric) })
}

var revokedWindow = body("revoked window", func(_ context.Context, world *mpi.Comm) error {
	w, err := mpi.WinAllocate[int64](world, 10)
	if err != nil {
		return err
	}
	switch world.Rank() {
	case 0:
		if err := firstError(w.Lock(0, true), mpi.Barrier(world)); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
		if err := w.Comm().Revoke(); err != nil {
			return err
		}
	case 1:
		if err := firstError(mpi.Barrier(world), wantError("Lock", w.Lock(0, false), mpi.ErrRevoked)); err != nil {
			return err
		}
	case 2:
		g, err := world.Group().Incl(1)
		if err := firstError(err, mpi.Barrier(world), wantError("Start", w.Start(g), mpi.ErrRevoked)); err != nil {
			return err
		}
	}
	return firstError(wantError("Free", w.Free(), mpi.ErrRevoked), mpi.Barrier(world))
})
