package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func TestWindowWithContext(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		// a window is not on the endpoint of the communicator that it is made from
		ranks(t, 2, windowWithContext, fabric, "WEFT_PASSIVE=never", "WEFT_PEER_TIMEOUT=60s",
			"WEFT_ENDPOINTS=3", flagVariable+"="+t.TempDir()+"/flag")
	})
}

// waitingCalls are the calls of rank 0 on a window while rank 1 makes none. They are numbered, so that rank 1
// learns of their end by a way that is not weft's.
type waitingCalls struct {
	world *mpi.Comm
	done  int
}

// alone has rank 0 run calls, after all that both have done before, while rank 1 makes none.
func (a *waitingCalls) alone(calls func() error) error {
	if err := mpi.Barrier(a.world); err != nil {
		return err
	}
	a.done++
	begun := os.Getenv(flagVariable) + strconv.Itoa(a.done)
	over := begun + "over"
	if a.world.Rank() == 0 {
		awaitFile(begun)
		err := calls()
		return firstError(err, os.WriteFile(over, nil, 0o600), mpi.Barrier(a.world))
	}
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		return err
	}
	awaitFile(over)
	return mpi.Barrier(a.world)
}

func awaitFile(name string) {
	for _, err := os.Stat(name); err != nil; _, err = os.Stat(name) {
		time.Sleep(time.Millisecond)
	}
}

// gaveUp calls through a handle whose context ends soon, and wants that to be the error.
func gaveUp(what string, win *mpi.Win[int64], call func(w *mpi.Win[int64]) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	w := win.WithContext(ctx)
	return firstError(wantError(what, call(w), context.DeadlineExceeded),
		wantError("Put after "+what, w.Put([]int64{1}, 0, 0), context.DeadlineExceeded))
}

// orGivenUp takes the end of a context for no error.
func orGivenUp(what string, err error) error {
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Every call that waits for another rank, which makes none, ends with its context; and the window is in the
// state that WithContext tells of.
var windowWithContext = body("window with context", func(_ context.Context, world *mpi.Comm) error {
	part := make([]int64, 4096) // whose owner has to help, whatever the fabric
	win, err := mpi.WinCreate(world, part)
	if err != nil {
		return err
	}
	a := &waitingCalls{world: world}
	for _, step := range []func(a *waitingCalls, win *mpi.Win[int64], part []int64) error{
		giveUpLocks, giveUpFlushes, giveUpFence, giveUpPosts, giveUpDetach, giveUpCreation,
	} {
		if err := step(a, win, part); err != nil {
			return err
		}
	}
	err = a.alone(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		return firstError(wantError("Free", win.WithContext(ctx).Free(), context.DeadlineExceeded),
			wantError("Put after Free", win.Put(part[:1], 1, 0), mpi.ErrWin))
	})
	if world.Rank() == 1 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		err = firstError(err, orGivenUp("Free", win.WithContext(ctx).Free()))
	}
	return err
})

func giveUpLocks(a *waitingCalls, win *mpi.Win[int64], part []int64) error {
	if a.world.Rank() == 1 {
		if err := win.Lock(1, mpi.Exclusive); err != nil {
			return err
		}
	}
	err := a.alone(func() error {
		return firstError(
			gaveUp("Lock", win, func(w *mpi.Win[int64]) error { return w.Lock(1, mpi.Exclusive) }),
			gaveUp("a shared Lock", win, func(w *mpi.Win[int64]) error { return w.Lock(1, mpi.Shared) }),
			gaveUp("Put within LockAll", win, func(w *mpi.Win[int64]) error {
				return firstError(w.LockAll(), w.Put(part[:1], 1, 0))
			}), win.UnlockAll())
	})
	if a.world.Rank() == 1 {
		err = firstError(err, win.Unlock(1))
	}
	// The places in the queue are given away.
	return firstError(err, win.Lock(1, mpi.Exclusive), win.Unlock(1))
}

func giveUpFlushes(a *waitingCalls, win *mpi.Win[int64], part []int64) error {
	block := make([]int64, 2048)
	block[0] = 5
	if a.world.Rank() == 0 {
		if err := firstError(win.Lock(1, mpi.Exclusive), win.Put(block, 1, 0), win.Flush(1)); err != nil {
			return err
		}
	}
	err := a.alone(func() error {
		if err := win.Put(block, 1, 0); err != nil {
			return err
		}
		return firstError(
			gaveUp("Flush", win, func(w *mpi.Win[int64]) error { return w.Flush(1) }),
			gaveUp("FlushLocal", win, func(w *mpi.Win[int64]) error { return w.FlushLocal(1) }),
			gaveUp("FlushAll", win, func(w *mpi.Win[int64]) error { return w.FlushAll() }),
			gaveUp("FetchAndOp", win, func(w *mpi.Win[int64]) error {
				_, err := w.FetchAndOp(1, 1, 4000, mpi.Sum[int64]())
				return err
			}),
			gaveUp("Rget", win, func(w *mpi.Win[int64]) error {
				r, err := w.Rget(block[:4], 1, 0)
				if err != nil {
					return err
				}
				_, err = r.Wait()
				return err
			}),
			gaveUp("Put without room", win, func(w *mpi.Win[int64]) (err error) {
				for i := 0; err == nil && i < 1000; i++ {
					err = w.Put([]int64{int64(i)}, 1, 4001)
				}
				return err
			}),
			gaveUp("Accumulate without room", win, func(w *mpi.Win[int64]) (err error) {
				for i := 0; err == nil && i < 1000; i++ {
					err = w.Accumulate(block[:1], 1, 4002, mpi.Sum[int64]())
				}
				return err
			}),
			gaveUp("Unlock", win, func(w *mpi.Win[int64]) error { return w.Unlock(1) }))
	})
	if err != nil {
		return err
	}
	if a.world.Rank() == 0 { // the epoch is open still, and the operations go on
		was, err := win.FetchAndOp(1, 1, 4000, mpi.Sum[int64]())
		if err := firstError(err, win.Unlock(1)); err != nil || was < 0 || was > 1 {
			return fmt.Errorf("FetchAndOp after one that was given up: %d, %w", was, err)
		}
	}
	if err := mpi.Barrier(a.world); err != nil {
		return err
	}
	if a.world.Rank() == 1 && part[0] != 5 {
		return fmt.Errorf("what was put is %d", part[0])
	}
	return nil
}

func giveUpFence(a *waitingCalls, win *mpi.Win[int64], part []int64) error {
	err := a.alone(func() error {
		return firstError(gaveUp("Fence", win, func(w *mpi.Win[int64]) error { return w.Fence() }),
			wantError("Put after Fence", win.Put(part[:1], 1, 0), mpi.ErrEpoch))
	})
	if a.world.Rank() == 1 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		err = firstError(err, orGivenUp("Fence", win.WithContext(ctx).Fence()))
	}
	return firstError(err, win.Fence(), win.Fence()) // in step
}

func giveUpPosts(a *waitingCalls, win *mpi.Win[int64], part []int64) error {
	group, err := a.world.Group().Incl(1 - a.world.Rank())
	if err != nil {
		return err
	}
	err = a.alone(func() error {
		return firstError(gaveUp("Start", win, func(w *mpi.Win[int64]) error { return w.Start(group) }),
			wantError("Put after Start", win.Put(part[:1], 1, 0), mpi.ErrEpoch))
	})
	if a.world.Rank() == 1 {
		err = firstError(err, win.Post(group))
	} else {
		err = firstError(err, win.Start(group))
	}
	if err != nil {
		return err
	}
	err = a.alone(func() error {
		return firstError(win.Put([]int64{7}, 1, 9),
			gaveUp("Complete", win, func(w *mpi.Win[int64]) error { return w.Complete() }))
	})
	if a.world.Rank() == 0 {
		err = firstError(err, win.Complete())
	} else {
		err = firstError(err, win.Wait(), want("what was put", part[9], 7))
	}
	if err != nil {
		return err
	}
	err = a.alone(func() error {
		return firstError(win.Post(group),
			gaveUp("Wait", win, func(w *mpi.Win[int64]) error { return w.Wait() }))
	})
	if a.world.Rank() == 0 {
		return firstError(err, win.Wait(), want("what was put", part[9], 8))
	}
	return firstError(err, win.Start(group), win.Put([]int64{8}, 0, 9), win.Complete())
}

func giveUpDetach(a *waitingCalls, _ *mpi.Win[int64], part []int64) error {
	win, err := mpi.WinCreateDynamic[int64](a.world)
	if err != nil {
		return err
	}
	at := make([]int, 1)
	mem := make([]int64, 100) // over shared memory too its owner has to help
	if a.world.Rank() == 1 {
		if at[0], err = win.Attach(mem); err != nil {
			return err
		}
	}
	if err := firstError(mpi.Bcast(a.world, at, 1), win.LockAll()); err != nil {
		return err
	}
	if a.world.Rank() == 0 {
		if err := win.Put(part[:100], 1, at[0]); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(a.world); err != nil {
		return err
	}
	if a.world.Rank() == 1 {
		if err := gaveUp("Detach", win, func(w *mpi.Win[int64]) error { return w.Detach(at[0]) }); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(a.world); err != nil {
		return err
	}
	if a.world.Rank() == 0 {
		if err := firstError(win.Flush(1), wantError("Put to memory that is being detached",
			win.Put(part[:1], 1, at[0]), mpi.ErrRange)); err != nil {
			return err
		}
	} else if err := win.Detach(at[0]); err != nil {
		return err
	}
	if err := win.UnlockAll(); err != nil {
		return err
	}
	if a.world.Rank() == 1 {
		at[0], err = win.Attach(mem)
	}
	if err := firstError(err, mpi.Bcast(a.world, at, 1)); err != nil {
		return err
	}
	err = a.alone(func() error {
		return firstError(win.LockAll(), gaveUp("Put to new memory", win, func(w *mpi.Win[int64]) error {
			return firstError(w.Put(part[:1], 1, at[0]), w.Flush(1)) // its owner has to help, with one of them
		}))
	})
	if a.world.Rank() == 0 {
		err = firstError(err, win.UnlockAll())
	} else {
		err = firstError(err, win.Detach(at[0]))
	}
	return firstError(err, win.Free())
}

func giveUpCreation(a *waitingCalls, _ *mpi.Win[int64], part []int64) error {
	comm, err := a.world.Dup() // whose collectives are those creations alone
	if err != nil {
		return err
	}
	for _, create := range []func(c *mpi.Comm) error{
		func(c *mpi.Comm) error { _, err := mpi.WinCreate(c, part); return err },
		func(c *mpi.Comm) error { _, err := mpi.WinAllocate[int64](c, 10); return err },
		func(c *mpi.Comm) error { _, err := mpi.WinCreateDynamic[int64](c); return err },
	} {
		ended := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			return create(comm.WithContext(ctx))
		}
		err := a.alone(func() error { return wantError("creation", ended(), context.DeadlineExceeded) })
		if a.world.Rank() == 1 {
			err = firstError(err, orGivenUp("creation", ended()))
		}
		if err := firstError(err, mpi.Barrier(comm)); err != nil {
			return err
		}
	}
	return comm.Free()
}
