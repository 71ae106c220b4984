package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

func TestWindowLockIsFair(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, testlength.Of(8, 5), fairLock, fabric, "WEFT_PEER_TIMEOUT=60s")
	})
}

// Of so many turns with one exclusive lock, from when all ranks have had one, none gets more than ten times what
// another gets: a rank that has no processor before it asks for the lock again misses turns.
var fairLock = body("fair lock", func(_ context.Context, world *mpi.Comm) error {
	turns := int64(testlength.Of(400, 100))
	everybody := int64(1)<<world.Size() - 1
	win, err := mpi.WinAllocate[int64](world, 2) // turns taken, and who has come
	if err := firstError(err, win.Lock(0, mpi.Shared), win.Unlock(0), mpi.Barrier(world)); err != nil {
		return err
	}
	v, mine := make([]int64, 2), []int64{0}
	for {
		if err := firstError(win.Lock(0, mpi.Exclusive), win.Get(v, 0, 0), win.Flush(0)); err != nil {
			return err
		}
		over := v[0] == turns
		if v[1] == everybody && !over {
			v[0]++
			mine[0]++
		}
		v[1] |= 1 << world.Rank()
		if err := firstError(win.Put(v, 0, 0), win.Unlock(0)); err != nil {
			return err
		}
		if over {
			break
		}
	}
	all := make([]int64, world.Size())
	if err := firstError(mpi.Allgather(world, mine, all), win.Free()); err != nil {
		return err
	}
	fewest, highest := all[0], all[0]
	for _, n := range all {
		fewest, highest = min(fewest, n), max(highest, n)
	}
	if highest > 10*fewest {
		return fmt.Errorf("turns of the ranks: %d", all)
	}
	return nil
})

func TestWindowLockOfAKilledRank(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		j := begin(t, 4, lockKept, fabric, "WEFT_PEER_TIMEOUT=2s")
		j.says(1, "locked")
		for _, rank := range []int{0, 2, 3} {
			j.says(rank, "waits")
		}
		j.signal(1, syscall.SIGKILL)
		for _, rank := range []int{0, 2, 3} {
			j.says(rank, "process failed")
		}
	})
}

// Rank 1 is killed while it has the lock of rank 0's part: the others do not wait for it any longer.
var lockKept = body("lock kept", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int64](world, 1)
	if err != nil {
		return err
	}
	if world.Rank() == 1 {
		if err := win.Lock(0, mpi.Exclusive); err != nil {
			return err
		}
		fmt.Println("locked")
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if world.Rank() == 1 {
		select {} // until it is killed
	}
	fmt.Println("waits")
	if err := wantError("Lock", win.Lock(0, exclusiveIf(world.Rank() == 2)), mpi.ErrProcFailed); err != nil {
		return err
	}
	fmt.Println("process failed")
	os.Exit(0)
	return nil
})

func TestWindowAllocations(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 2, windowAllocations, fabric) })
}

// No operation allocates.
var windowAllocations = body("window allocations", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int64](world, 4096)
	if err := firstError(err, win.LockAll()); err != nil {
		return err
	}
	buf, matrix, was := make([]int64, 1), make([]int64, 8192), make([]int64, 8)
	large := make([]int64, 4096)
	column, place := mpi.Strided(matrix, 64, 1, 128), win.At(0, 64)
	sum := mpi.Sum[int64]()
	for name, call := range map[string]func() error{
		"Put":       func() error { return firstErr(win.Put(buf, 1, 0), win.Flush(1)) },
		"Get":       func() error { return firstErr(win.Get(buf, 1, 0), win.Flush(1)) },
		"large Put": func() error { return firstErr(win.Put(large, 1, 0), win.Flush(1)) },
		"large Get": func() error { return firstErr(win.Get(large, 1, 0), win.Flush(1)) },
		"Accumulate": func() error {
			return firstErr(win.Accumulate(was, 1, 0, sum), win.Flush(1))
		},
		"GetAccumulate": func() error { return firstErr(win.GetAccumulate(was, was, 1, 0, sum), win.Flush(1)) },
		"FetchAndOp": func() error {
			_, err := win.FetchAndOp(1, 1, 0, sum)
			return err
		},
		"CompareAndSwap": func() error {
			_, err := win.CompareAndSwap(0, 1, 1, 0)
			return err
		},
		"PutView": func() error { return firstErr(win.PutView(column, 1, place), win.Flush(1)) },
		"GetView": func() error { return firstErr(win.GetView(column, 1, place), win.Flush(1)) },
	} {
		if world.Rank() == 0 && !raceDetector {
			if err := allocatesNothing(call); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return firstError(mpi.Barrier(world), win.UnlockAll(), win.Free())
})

// firstErr is firstError of two, which allocates nothing.
func firstErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func allocatesNothing(call func() error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const rounds = 40
	var before, after runtime.MemStats
	for range 10 { // what each call allocates, each measurement finds
		runtime.ReadMemStats(&before)
		for range rounds {
			if err := call(); err != nil {
				return err
			}
		}
		runtime.ReadMemStats(&after)
		if after.Mallocs-before.Mallocs < rounds/4 { // others may have some
			return nil
		}
	}
	return fmt.Errorf("%d allocations in %d calls", after.Mallocs-before.Mallocs, rounds)
}

func TestWindowProgressWhileTheTargetComputes(t *testing.T) {
	for name, c := range map[string]struct {
		env     []string
		minPuts int // Puts, each with its Flush, until whose end the target computes; 0: for a second
	}{
		"shm":          {[]string{"WEFT_FABRIC=shm"}, 1000},
		"tcp, handler": {[]string{"WEFT_FABRIC=tcp", "WEFT_CQ_CORES=0", "GOMAXPROCS=3"}, 50},
		"tcp, passive": {[]string{"WEFT_FABRIC=tcp", "WEFT_PASSIVE=1ms", "GOMAXPROCS=3"}, 50},
		"tcp, never":   {[]string{"WEFT_FABRIC=tcp", "WEFT_PASSIVE=never", "GOMAXPROCS=3"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ranks(t, 2, targetComputes, append(c.env, minPutsVariable+"="+strconv.Itoa(c.minPuts),
				flagVariable+"="+t.TempDir()+"/flag", "WEFT_PEER_TIMEOUT=60s")...)
		})
	}
}

// minPutsVariable is how many Puts have to be complete before the target stops to compute.
const minPutsVariable = "MPI_TEST_LEAST"

// Rank 1 computes, and makes no call until Puts of rank 0 and their Flushes have ended: so they do all the
// same. If nothing looks after the window, none of them ends before rank 1 makes a call.
var targetComputes = body("target computes", func(_ context.Context, world *mpi.Comm) error {
	minPuts, err := strconv.Atoi(os.Getenv(minPutsVariable))
	if err != nil {
		return err
	}
	win, err := mpi.WinAllocate[int64](world, 1)
	if err := firstError(err, win.LockAll()); err != nil {
		return err
	}
	v := []int64{0}
	if world.Rank() == 0 { // what comes with the first use is over
		if err := firstError(win.Put(v, 1, 0), win.Flush(1)); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if world.Rank() == 1 {
		if err := raiseFlag(".computes"); err != nil {
			return err
		}
		computes := func(since time.Duration) bool {
			if minPuts > 0 {
				return !flagIsUp("")
			}
			return since < time.Second
		}
		for start := time.Now(); computes(time.Since(start)); {
			compute := 1.0
			for range 100_000 {
				compute = compute*0.5 + 0.25
			}
			v[0] += int64(compute)
		}
		if minPuts == 0 {
			err = raiseFlag("")
		}
		return firstError(err, mpi.Barrier(world), win.UnlockAll(), win.Free())
	}
	for !flagIsUp(".computes") { // until then it may be in the Barrier
		time.Sleep(time.Millisecond)
	}
	done := 0
	for minPuts > done || minPuts == 0 && !flagIsUp("") {
		if err := firstError(win.Put(v, 1, 0), win.Flush(1)); err != nil {
			return err
		}
		done++
	}
	if minPuts == 0 && done > 1 {
		return fmt.Errorf("%d Puts were complete with nobody to see to them", done)
	}
	if minPuts > 0 {
		err = raiseFlag("")
	}
	return firstError(err, mpi.Barrier(world), win.UnlockAll(), win.Free())
})

func flagIsUp(suffix string) bool {
	_, err := os.Stat(os.Getenv(flagVariable) + suffix)
	return !errors.Is(err, os.ErrNotExist)
}

// lockAllSleepers: some goroutines of rank 0 begin with one target within LockAll while rank 1 keeps its lock.
// None has its operation carried out before the lock is there. One waits for the lock, and all others sleep
// until it has it: if they looked again and again they would keep the processors from all other goroutines.
var lockAllSleepers = body("sleepers of LockAll", func(ctx context.Context, world *mpi.Comm) error {
	const many = 10
	win, err := mpi.WinAllocate[int64](world, 1)
	if err != nil {
		return err
	}
	if world.Rank() == 1 {
		if err := firstError(win.Lock(1, mpi.Exclusive), mpi.Barrier(world), mpi.Barrier(world),
			win.Unlock(1)); err != nil {
			return err
		}
		return firstError(mpi.Barrier(world), wantLocal(win, many), win.Free())
	}
	ended, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	bounded := win.WithContext(ended)
	if err := firstError(mpi.Barrier(world), win.LockAll()); err != nil {
		return err
	}
	errs := make(chan error, many+1)
	add := func(win *mpi.Win[int64]) {
		_, err := win.FetchAndOp(1, 1, 0, mpi.Sum[int64]())
		errs <- err
	}
	for range many {
		go add(win)
	}
	for sleepersForLock() != many-1 {
		select {
		case err := <-errs:
			return fmt.Errorf("an operation ends before the lock is there: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	// One that has its context ends with it, and the others sleep on.
	go add(bounded)
	for sleepersForLock() != many {
		time.Sleep(time.Millisecond)
	}
	giveUp(errEnough)
	if err := <-errs; !errors.Is(err, errEnough) {
		return fmt.Errorf("the context has ended, and the call gives %v", err)
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	for range many {
		if err := <-errs; err != nil {
			return err
		}
	}
	return firstError(win.UnlockAll(), mpi.Barrier(world), win.Free())
})

// sleepersForLock is how many goroutines sleep in the engine until another has taken a target's lock.
func sleepersForLock() (n int) {
	b := make([]byte, 1<<20)
	for g := range bytes.SplitSeq(b[:runtime.Stack(b, true)], []byte("\n\n")) {
		if bytes.Contains(g, []byte("engine.(*Window).SleepUntil(")) &&
			bytes.Contains(g, []byte("engine.(*waiting).sleep(")) {
			n++
		}
	}
	return n
}

func wantLocal(win *mpi.Win[int64], want int64) error {
	if got := win.Local()[0]; got != want {
		return fmt.Errorf("the element is %d, want %d", got, want)
	}
	return nil
}

func TestWindowLockAllSleeps(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		ranks(t, 2, lockAllSleepers, fabric, "WEFT_PEER_TIMEOUT=60s")
	})
}
