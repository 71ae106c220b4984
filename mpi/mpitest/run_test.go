package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

func sums(_ context.Context, world *mpi.Comm) error {
	sum := make([]int, 1)
	if err := mpi.Allreduce(world, []int{world.Rank() + 1}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	if want := world.Size() * (world.Size() + 1) / 2; sum[0] != want {
		return fmt.Errorf("the sum is %d, not %d", sum[0], want)
	}
	return nil
}

func TestSizes(t *testing.T) { mpitest.Sizes(t, []int{1, 2, 3, 4, 7, 8}, sums) }

// Jobs of several tests run at once in one process.
func TestRun_SeveralJobsAtOnce(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for range 5 {
				mpitest.Run(t, n, sums)
			}
		})
	}
}

func TestRun_WorldAfterwards(t *testing.T) {
	for _, check := range []string{"on", "off"} {
		t.Run("checking mode "+check, func(t *testing.T) {
			worldAfterwards(t, mpi.Config{Settings: map[string]string{"WEFT_CHECK": check}})
		})
	}
}

func worldAfterwards(t *testing.T, c mpi.Config) {
	var world *mpi.Comm
	var request mpi.Request
	mpitest.Run(t, 1, func(_ context.Context, w *mpi.Comm) error {
		world = w
		var err error
		if request, err = mpi.Isend(w, []int{1}, 0, 0); err != nil {
			return err
		}
		if _, err := mpi.Recv(w, make([]int, 1), 0, 0); err != nil {
			return err
		}
		_, err = request.Wait()
		return err
	}, mpitest.Config(c))
	require.ErrorIs(t, mpi.Send(world, []int{1}, 0, 0), mpi.ErrFinalized)
	require.ErrorIs(t, mpi.Barrier(world), mpi.ErrFinalized)
	_, err := world.Dup()
	require.ErrorIs(t, err, mpi.ErrFinalized)
	_, err = mpi.AllocOn[int](world, 1)
	require.ErrorIs(t, err, mpi.ErrFinalized)
	_, err = mpi.WinAllocate[int](world, 1)
	require.ErrorIs(t, err, mpi.ErrFinalized)
	_, err = request.Wait()
	require.ErrorIs(t, err, mpi.ErrRequest)
}

func TestRun_WorldAfterAFailure(t *testing.T) {
	for _, fabric := range []string{"sim", "shm", "tcp"} {
		var world *mpi.Comm
		err := mpitest.Try(t, 2, func(_ context.Context, w *mpi.Comm) error {
			if w.Rank() == 1 {
				return errors.New("boom")
			}
			world = w
			return mpi.Barrier(w)
		}, mpitest.Fabric(fabric))
		require.EqualError(t, err, "rank 1: boom")
		require.ErrorIs(t, mpi.Barrier(world), mpi.ErrFinalized)
	}
}

// Ranks of one process may share memory, and use sockets.
func TestFabric(t *testing.T) {
	for _, fabric := range []string{"auto", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			mpitest.Sizes(t, []int{1, 2, 5}, sums, mpitest.Fabric(fabric))
		})
	}
	mpitest.Run(t, 3, func(_ context.Context, world *mpi.Comm) error {
		w, err := mpi.WinAllocateShared[int](world, 1)
		if err != nil {
			return err
		}
		w.Local()[0] = world.Rank()
		if err := w.Fence(); err != nil {
			return err
		}
		if next := (world.Rank() + 1) % 3; w.Of(next)[0] != next {
			return fmt.Errorf("rank %d has %d", next, w.Of(next)[0])
		}
		return w.Free()
	}, mpitest.Fabric("shm"))
}

// An hour passes as soon as nobody can go on without it.
func TestRun_TimeTakesNoTime(t *testing.T) {
	mpitest.Run(t, 2, func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			time.Sleep(100 * time.Minute)
			return mpi.Send(world, []int{1}, 1, 0)
		}
		soon, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		buf := make([]int, 1)
		if _, err := mpi.Recv(world.WithContext(soon), buf, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a receive with a deadline has returned %w", err)
		}
		_, err := mpi.Recv(world, buf, 0, 0)
		return err
	})
}

func TestRun_Skip(t *testing.T) {
	went := true
	t.Run("", func(t *testing.T) {
		went = false
		mpitest.Run(t, 3, func(ctx context.Context, world *mpi.Comm) error {
			if world.Rank() == 1 {
				mpitest.T(ctx).Skip("not today")
			}
			return mpi.Barrier(world)
		})
		went = true
	})
	require.False(t, went)
}

func TestAllocOn(t *testing.T) {
	mpitest.Run(t, 2, func(_ context.Context, world *mpi.Comm) error {
		buf, err := mpi.AllocOn[int](world, 1<<16)
		if err != nil {
			return err
		}
		for i := range buf {
			buf[i] = world.Rank()
		}
		in := make([]int, len(buf))
		peer := 1 - world.Rank()
		if _, err := mpi.Sendrecv(world, buf, peer, 0, in, peer, 0); err != nil {
			return err
		}
		for i, v := range in {
			if v != peer {
				return fmt.Errorf("element %d is %d", i, v)
			}
		}
		return mpi.FreeOn(world, buf)
	})
}

// The ranks of one job may use goroutines, windows and communicators.
func TestRun_Parts(t *testing.T) {
	mpitest.Sizes(t, []int{1, 4}, func(ctx context.Context, world *mpi.Comm) error {
		half, err := world.Split(world.Rank()%2, 0)
		if err != nil {
			return err
		}
		if err := sums(ctx, half); err != nil {
			return err
		}
		w, err := mpi.WinAllocate[int](world, world.Size())
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		for rank := range world.Size() {
			if err := w.Put([]int{world.Rank()}, rank, world.Rank()); err != nil {
				return err
			}
		}
		if err := w.Fence(); err != nil {
			return err
		}
		for rank, v := range w.Local() {
			if v != rank {
				return fmt.Errorf("rank %d has put %d", rank, v)
			}
		}
		return errors.Join(w.Free(), half.Free())
	})
}

// Goroutines of a rank may hold a mutex during a call, if they do not take turns.
func TestConcurrent(t *testing.T) {
	mpitest.Run(t, 2, func(_ context.Context, world *mpi.Comm) error {
		var mu sync.Mutex
		var all sync.WaitGroup
		var errs [2]error
		for i := range errs {
			all.Go(func() {
				mu.Lock()
				defer mu.Unlock()
				errs[i] = mpi.Barrier(world)
			})
		}
		all.Wait()
		return errors.Join(errs[:]...)
	}, mpitest.Concurrent())
}

// A mutex that is not released stops the clock of the ranks. The job is left behind, and says what it waits for.
func TestMutex(t *testing.T) {
	const noTurn = `^rank \d waits at run_test.go:\d+ \[.*\], and no rank has a turn while one waits so. A mutex that ` +
		`others wait for .* mpitest.Concurrent, .*. What the ranks do:\n`
	for _, m := range []struct {
		name       string
		body       mpitest.Body
		want       []string // lines
		inTurns    string   // the first line
		concurrent string
	}{
		{"two in opposite order", opposite(func(*mpi.Comm) error { return nil }),
			[]string{`  rank 0: (sync.Mutex.Lock|Barrier), at run_test.go:\d+`}, noTurn, "^deadlock: no rank can ever go on\n"},
		{"two in opposite order, with calls", opposite(mpi.Barrier),
			[]string{`  rank 1: (sync.Mutex.Lock|Barrier), at run_test.go:\d+`}, noTurn, "^deadlock: no rank can ever go on\n"},
		{"others are in a call", func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 2 {
				var mu sync.RWMutex
				mu.RLock()
				mu.Lock()
			}
			return mpi.Barrier(world)
		}, []string{`  rank 2: sync.RWMutex.Lock, at run_test.go:\d+`}, "", "^deadlock: no rank can ever go on\n"},
		{"others have returned", func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 2 {
				var mu sync.Mutex
				mu.Lock()
				mu.Lock()
			}
			return nil
		}, []string{`  rank 2: sync.Mutex.Lock, at run_test.go:\d+`}, "", "^deadlock: no rank can ever go on\n"},
		{"a channel of the test", func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 0 {
				<-ofTheTest
			}
			return mpi.Barrier(world)
		}, []string{`  rank 0: chan receive, at run_test.go:\d+`}, "", "^deadlock: no rank can ever go on\n"},
		{"whoever has it sleeps", func(_ context.Context, world *mpi.Comm) error {
			var mu sync.Mutex
			mu.Lock()
			go func() {
				defer mu.Unlock()
				time.Sleep(time.Second)
			}()
			mu.Lock()
			return mpi.Barrier(world)
		}, []string{`  rank 1: sleep, at run_test.go:\d+`}, "",
			`^rank \d waits at run_test.go:\d+ \[sync.Mutex.Lock\], and the ranks' clock stands still`},
	} {
		for _, concurrent := range []bool{false, true} {
			name, first, opts := m.name, m.inTurns, []mpitest.Option(nil)
			if concurrent {
				name, first, opts = name+", concurrent", m.concurrent, append(opts, mpitest.Concurrent())
			}
			t.Run(name, func(t *testing.T) {
				begun := time.Now()
				err := mpitest.Try(t, 3, m.body, opts...)
				t.Logf("found after %v", time.Since(begun))
				require.Error(t, err)
				require.Regexp(t, first, err.Error())
				for _, pattern := range m.want {
					if concurrent {
						require.Regexp(t, pattern, err.Error())
					}
				}
			})
		}
	}
}

var ofTheTest = make(chan int)

// opposite has ranks 0 and 1 take two mutexes, each in its own order, and make a call between.
func opposite(call func(world *mpi.Comm) error) mpitest.Body {
	var mutexes [2][2]sync.Mutex
	var jobs atomic.Int32
	return func(_ context.Context, world *mpi.Comm) error {
		of := &mutexes[(jobs.Add(1)-1)/3] // of the first or the second job
		first, second := &of[0], &of[1]
		if world.Rank() == 1 {
			first, second = second, first
		}
		if world.Rank() < 2 {
			first.Lock()
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if err := call(world); err != nil {
			return err
		}
		if world.Rank() < 2 {
			second.Lock()
		}
		return mpi.Barrier(world)
	}
}
