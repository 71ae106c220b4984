package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// struckEpochs are the epochs of windows, and their creation, in which ranks die.
var struckEpochs = []strike{
	{"WinFence", inWindow(func(w *mpi.Win[int64], n int64) error {
		c := w.Comm()
		err := firstError(w.Fence(), w.Put([]int64{of(c.Rank(), n, 0)}, neighbor(c), 0), w.Fence(),
			w.Put(contribution(c.Rank(), n, 800), neighbor(c), 100), w.Fence())
		return firstError(fromLeft(w, n, 0, 1, err), fromLeft(w, n, 100, 800, err))
	})},
	{"WinPostStart", inWindow(func(w *mpi.Win[int64], n int64) error {
		c := w.Comm()
		left, err := c.Group().Incl((c.Rank() + c.Size() - 1) % c.Size())
		right, err2 := c.Group().Incl(neighbor(c))
		if err = firstError(err, err2, w.Post(left), w.Start(right)); err != nil {
			return err
		}
		err = firstError(w.Put(contribution(c.Rank(), n, 1), neighbor(c), 0), w.Complete(), w.Wait())
		return fromLeft(w, n, 0, 1, err)
	})},
	{"WinPostStartAll", inWindow(func(w *mpi.Win[int64], n int64) error {
		g := w.Comm().Group()
		if err := firstError(w.Post(g), w.Start(g)); err != nil {
			return err
		}
		put := w.Put(contribution(w.Comm().Rank(), n, 300), neighbor(w.Comm()), 0)
		return fromLeft(w, n, 0, 300, firstError(put, w.Complete(), w.Wait()))
	})},
	{"WinLock", inWindow(func(w *mpi.Win[int64], _ int64) error {
		for range 5 {
			if err := w.Lock(0, mpi.Exclusive); err != nil {
				return err
			}
			at := []int64{0}
			err := firstError(w.Get(at, 0, 0), w.Flush(0))
			at[0]++
			if err = firstError(err, w.Put(at, 0, 0), w.Unlock(0)); err != nil {
				return err
			}
		}
		return wantCount(w, 0, 0, 5*w.Comm().Size())
	})},
	{"WinLockAll", inWindow(func(w *mpi.Win[int64], _ int64) error {
		return firstError(inLockAll(w, func(rank int) error {
			return firstError(w.Put([]int64{1}, rank, 1), second(w.FetchAndOp(1, rank, 0, mpi.Sum[int64]())))
		}), wantCount(w, w.Comm().Rank(), 0, w.Comm().Size()))
	})},
	{"WinFlush", inWindow(func(w *mpi.Win[int64], n int64) error {
		me := w.Comm().Rank()
		return inLockAll(w, func(rank int) error {
			got := make([]int64, 1)
			err := firstError(w.Put(contribution(me, n, 1), rank, 2+me), w.Flush(rank), w.Get(got, rank, 2+me),
				w.FlushLocal(rank), w.FlushAll())
			return right("Get", got, err, func(i int) int64 { return of(me, n, i) })
		})
	})},
	{"WinRequests", inWindow(func(w *mpi.Win[int64], n int64) error {
		me := w.Comm().Rank()
		return firstError(inLockAll(w, func(rank int) error {
			put, err := w.Rput(contribution(me, n, 90), rank, 90*(1+me))
			add, err2 := w.Raccumulate([]int64{1}, rank, 7, mpi.Sum[int64]())
			if err = firstError(mpi.Waitall([]mpi.Request{put, add}), err, err2, w.Flush(rank)); err != nil {
				return err
			}
			got := make([]int64, 90)
			err = waited(w.Rget(got, rank, 90*(1+me)))
			return right("Rget", got, err, func(i int) int64 { return of(me, n, i) })
		}), wantCount(w, me, 7, w.Comm().Size()))
	})},
	{"WinAtomics", inWindow(func(w *mpi.Win[int64], _ int64) error {
		return firstError(inLockAll(w, func(rank int) error {
			old := []int64{0}
			for done := false; !done; {
				was, err := w.CompareAndSwap(old[0], old[0]+1, rank, 3)
				if err != nil {
					return err
				}
				done = was == old[0]
				old[0] = was
			}
			return w.GetAccumulate([]int64{2}, old, rank, 4, mpi.Sum[int64]())
		}), wantCount(w, w.Comm().Rank(), 4, 2*w.Comm().Size()), wantCount(w, w.Comm().Rank(), 3, w.Comm().Size()))
	})},
	{"WinPassive", inWindow(func(w *mpi.Win[int64], _ int64) error {
		if w.Comm().Rank() == 0 {
			time.Sleep(time.Millisecond) // a target that makes no calls
		} else if err := inLockAll(w, func(int) error {
			return firstError(w.Accumulate([]int64{1}, 0, 0, mpi.Sum[int64]()), w.Flush(0))
		}); err != nil {
			return err
		}
		return wantCount(w, 0, 0, w.Comm().Size()*(w.Comm().Size()-1))
	})},
	{"WinAllocate", func(c *mpi.Comm, n int64) error {
		return useWindow(mpi.WinAllocate[int64](c, 1+int(n)%3*1000))(fenced, n)
	}},
	{"WinCreate", func(c *mpi.Comm, n int64) error {
		return useWindow(mpi.WinCreate(c, make([]int64, 1+int(n)%3*1000)))(fenced, n)
	}},
	{"WinCreateOfAlloc", func(c *mpi.Comm, n int64) error {
		mem, err := mpi.Alloc[int64](10)
		if err != nil {
			return err
		}
		err = useWindow(mpi.WinCreate(c, mem))(fenced, n)
		if err != nil {
			return err // others may be at the memory
		}
		return mpi.Free(mem)
	}},
	{"WinAllocateShared", func(c *mpi.Comm, n int64) error {
		host, err := c.SplitShared()
		if err != nil {
			return err
		}
		defer host.Free()
		w, err := mpi.WinAllocateShared[int64](host, 10)
		if os.Getenv("WEFT_FABRIC") == "tcp" && errors.Is(err, mpi.ErrWin) {
			return nil // nothing is mapped
		}
		return useWindow(w, err)(func(w *mpi.Win[int64], n int64) error {
			c := w.Comm()
			err := w.Fence()
			if err == nil {
				atomic.StoreInt64(&w.Of(neighbor(c))[0], of(c.Rank(), n, 0))
			}
			return fromLeft(w, n, 0, 1, firstError(err, w.Fence()))
		}, n)
	}},
}

// fenced has every rank put to its neighbor.
func fenced(w *mpi.Win[int64], n int64) error {
	c := w.Comm()
	put := func() error { return w.Put(contribution(c.Rank(), n, 1), neighbor(c), 0) }
	err := w.Fence()
	if err == nil {
		err = put()
	}
	return fromLeft(w, n, 0, 1, firstError(err, w.Fence()))
}

// fromLeft wants the left neighbor's contribution in this rank's part, if there is no error.
func fromLeft(w *mpi.Win[int64], n int64, at, length int, err error) error {
	c := w.Comm()
	left := (c.Rank() + c.Size() - 1) % c.Size()
	got := make([]int64, length)
	for i := range got {
		got[i] = atomic.LoadInt64(&w.Local()[at+i])
	}
	return right("the epoch", got, err, func(i int) int64 { return of(left, n, i) })
}

// wantCount wants that all ranks together have added so much to an element of a rank, when all are done.
func wantCount(w *mpi.Win[int64], rank, at, sum int) error {
	if err := mpi.Barrier(w.Comm()); err != nil || rank != w.Comm().Rank() {
		return err
	}
	return want("what the ranks have added up", atomic.LoadInt64(&w.Local()[at]), int64(sum))
}

// inWindow makes a window and uses it.
func inWindow(use func(w *mpi.Win[int64], n int64) error) func(c *mpi.Comm, n int64) error {
	return func(c *mpi.Comm, n int64) error { return useWindow(mpi.WinAllocate[int64](c, 1000))(use, n) }
}

// useWindow gives what uses a window, if it was made, and frees it whatever happens.
func useWindow(w *mpi.Win[int64], err error) func(use func(w *mpi.Win[int64], n int64) error, n int64) error {
	return func(use func(w *mpi.Win[int64], n int64) error, n int64) error {
		if err != nil {
			return err
		}
		err := use(w, n)
		if err != nil {
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
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launchertest.RunSurviving(t, launchertest.Ranks(4, windowOutlivesRank, fabric))
		require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s", r.Err)
		require.Contains(t, r.Out, "rank 0 is done", r.Err)
		require.Contains(t, r.Out, "rank 1 is done", r.Err)
		require.Contains(t, r.Out, "rank 2 is done", r.Err)
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
		if err := firstError(w.Lock(0, mpi.Exclusive), w.Put([]int64{3}, 0, 0), w.Flush(0), mpi.Barrier(world)); err != nil {
			return err
		}
		for src := range 3 { // each has left the Barrier, which would fail otherwise
			if _, err := mpi.Recv(world, []int64{0}, src, 0); err != nil {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond) // rank 1 waits for the lock
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if err := firstError(mpi.Barrier(world), mpi.Send(world, []int64{0}, 3, 0)); err != nil {
		return err
	}
	if rank == 1 {
		if err := wantError("Lock", w.Lock(0, mpi.Exclusive), mpi.ErrProcFailed); err != nil {
			return err
		}
	}
	for len(world.Failed()) == 0 {
		time.Sleep(time.Millisecond)
	}
	// what needs nothing of rank 3
	err = firstError(w.Lock(rank, mpi.Exclusive), w.Put([]int64{1}, rank, 1), w.Unlock(rank))
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
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, revokedWindow, fabric) })
}

var revokedWindow = body("revoked window", func(_ context.Context, world *mpi.Comm) error {
	w, err := mpi.WinAllocate[int64](world, 10)
	if err != nil {
		return err
	}
	switch world.Rank() {
	case 0:
		if err := firstError(w.Lock(0, mpi.Exclusive), mpi.Barrier(world)); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
		if err := w.Comm().Revoke(); err != nil {
			return err
		}
	case 1:
		if err := firstError(mpi.Barrier(world), wantError("Lock", w.Lock(0, mpi.Shared), mpi.ErrRevoked)); err != nil {
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
