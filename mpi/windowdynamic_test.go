package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestDynamicWindow(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 3, dynamicWindow, fabric) })
}

// attachBoth attaches memory of either kind, and tells all ranks of the positions.
func attachBoth(world *mpi.Comm, win *mpi.Win[int64], n int) (mine [2][]int64, at [][2]int, err error) {
	heap := make([]int64, n)
	shared, err := mpi.Alloc[int64](n)
	if err != nil {
		return mine, nil, err
	}
	mine = [2][]int64{heap, shared}
	var own [2]int
	for i, m := range mine {
		if own[i], err = win.Attach(m); err != nil {
			return mine, nil, err
		}
	}
	at = make([][2]int, world.Size())
	return mine, at, mpi.Allgather(world, [][2]int{own}, at)
}

// Every operation reaches what a rank has attached, at the positions that it tells; each is complete at the
// owner after the synchronization, and the owner gets its memory back.
var dynamicWindow = body("dynamic window", func(_ context.Context, world *mpi.Comm) error {
	const n = 5000
	win, err := mpi.WinCreateDynamic[int64](world)
	if err != nil {
		return err
	}
	me, size := world.Rank(), world.Size()
	for round := range 3 {
		mine, at, err := attachBoth(world, win, n)
		if err := firstError(err, win.LockAll()); err != nil {
			return err
		}
		block, back := make([]int64, n/size), make([]int64, n)
		for i := range block {
			block[i] = int64(round + me*n + i)
		}
		for rank := range size {
			for _, first := range at[rank] {
				if err := firstError(win.Put(block, rank, first+me*len(block)), win.Flush(rank)); err != nil {
					return err
				}
				was, err := win.FetchAndOp(1, rank, first+n-1, mpi.Sum[int64]())
				if err := firstError(err, win.Accumulate([]int64{1, 1}, rank, first+n-2, mpi.Sum[int64]()),
					wantAtMost("FetchAndOp", was, int64(2*size))); err != nil {
					return err
				}
			}
		}
		if err := firstError(win.FlushAll(), mpi.Barrier(world)); err != nil {
			return err
		}
		for _, first := range at[(me+1)%size] {
			get, err := win.Rget(back, (me+1)%size, first)
			if err != nil {
				return err
			}
			if _, err := get.Wait(); err != nil {
				return err
			}
			if back[n-1] != int64(2*size) || back[n-2] != int64(size) || back[len(block)+1] != int64(round+n+1) {
				return fmt.Errorf("Rget: %d, %d, %d", back[n-1], back[n-2], back[len(block)+1])
			}
		}
		if err := dynamicViews(world, win, at, n); err != nil {
			return err
		}
		if err := firstError(win.UnlockAll(), mpi.Barrier(world)); err != nil {
			return err
		}
		for i, m := range mine {
			if m[n-1] != int64(2*size) || m[len(block)+1] != int64(round+n+1) {
				return fmt.Errorf("attached memory %d: %d and %d", i, m[n-1], m[len(block)+1])
			}
			if err := win.Detach(at[me][i]); err != nil {
				return err
			}
		}
		if err := mpi.Free(mine[1]); err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if err := firstError(win.Lock(0, mpi.Shared), wantError("Put to memory that was detached",
			win.Put(block[:1], 0, at[0][0]), mpi.ErrRange), win.Unlock(0)); err != nil {
			return err
		}
	}
	return win.Free()
})

func wantAtMost(what string, got, limit int64) error {
	if got < 0 || got > limit {
		return fmt.Errorf("%s: %d, and at most %d was expected", what, got, limit)
	}
	return nil
}

// dynamicViews has the next rank's elements go through a view, and back.
func dynamicViews(world *mpi.Comm, win *mpi.Win[int64], at [][2]int, n int) error {
	next := (world.Rank() + 1) % world.Size()
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	matrix, back := make([]int64, 60), make([]int64, 10)
	for _, first := range at[next] {
		for i := range matrix {
			matrix[i] = int64(i)
		}
		place := win.At(first, n).Strided(10, 1, 3)
		if err := firstError(win.PutView(mpi.Strided(matrix, 10, 1, 6), next, place), win.Flush(next),
			win.GetView(mpi.Strided(back, 10, 1, -1), next, place), win.Flush(next)); err != nil {
			return err
		}
		for i, v := range back {
			if v != int64(6*(9-i)) {
				return fmt.Errorf("GetView: %v", back)
			}
		}
		// what the views have changed is as it was
		if err := firstError(win.Put([]int64{0}, next, first), win.Flush(next)); err != nil {
			return err
		}
		block := make([]int64, 30)
		if err := win.Get(block, next, first); err != nil {
			return err
		}
	}
	return firstError(win.FlushAll(), mpi.Barrier(world), restoreBlocks(world, win, at, n))
}

// restoreBlocks puts this rank's block everywhere again.
func restoreBlocks(world *mpi.Comm, win *mpi.Win[int64], at [][2]int, n int) error {
	if world.Rank() != 0 {
		return mpi.Barrier(world)
	}
	for rank := range at {
		for _, first := range at[rank] {
			if err := win.Put(make([]int64, 30), rank, first); err != nil {
				return err
			}
		}
	}
	return firstError(win.FlushAll(), mpi.Barrier(world))
}

func TestDynamicWindowErrors(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, dynamicWindowErrors, fabric) })
}

// What is not attached, or not any more, or not so long, fails at the caller. The owner notices nothing.
var dynamicWindowErrors = body("dynamic window errors", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinCreateDynamic[int32](world)
	plain, err2 := mpi.WinAllocate[int32](world, 1)
	if err := firstError(err, err2); err != nil {
		return err
	}
	none := (*mpi.Win[int32])(nil)
	_, toNone := none.Attach(nil)
	_, toPlain := plain.Attach(make([]int32, 1))
	if err := firstError(wantError("Attach to no window", toNone, mpi.ErrWin),
		wantError("Attach to another window", toPlain, mpi.ErrWin),
		wantError("Detach of another window", plain.Detach(0), mpi.ErrWin),
		wantError("Detach of nothing", win.Detach(0), mpi.ErrRange),
		wantError("Detach of a negative position", win.Detach(-1), mpi.ErrRange)); err != nil {
		return err
	}
	mem := make([]int32, 10-world.Rank())
	at := make([]int, 2)
	own, err := win.Attach(mem)
	empty, err2 := win.Attach(nil)
	if err := firstError(err, err2, mpi.Allgather(world, []int{own}, at),
		wantError("Detach of a position within", win.Detach(own+1), mpi.ErrRange)); err != nil {
		return err
	}
	one, there := []int32{1}, at[1-world.Rank()]
	other, long := 1-world.Rank(), 9+world.Rank()
	_, fetch := win.FetchAndOp(1, other, there, mpi.Sum[int32]())
	if err := firstError(wantError("Put without an epoch", win.Put(one, other, there), mpi.ErrEpoch),
		wantError("FetchAndOp without an epoch", fetch, mpi.ErrEpoch), win.LockAll()); err != nil {
		return err
	}
	_, fetch = win.FetchAndOp(1, other, there+long, mpi.Sum[int32]())
	_, get := win.Rget(make([]int32, long+1), other, there)
	if err := firstError(
		wantError("Put after the end", win.Put(one, other, there+long), mpi.ErrRange),
		wantError("Put before the beginning", win.Put(one, other, there-1), mpi.ErrRange),
		wantError("Get of too much", win.Get(make([]int32, long+1), other, there), mpi.ErrRange),
		wantError("Put at 0", win.Put(one, other, 0), mpi.ErrRange),
		wantError("Put at a negative position", win.Put(one, other, -1), mpi.ErrRange),
		wantError("Accumulate far away", win.Accumulate(one, other, 1<<62, mpi.Sum[int32]()), mpi.ErrRange),
		wantError("FetchAndOp after the end", fetch, mpi.ErrRange),
		wantError("Rget of too much", get, mpi.ErrRange),
		wantError("PutView after the end", win.PutView(mpi.Strided(one, 1, 1, 1), other,
			win.At(there+long, 1)), mpi.ErrRange),
		wantError("Put to nothing", win.Put(one, world.Rank(), empty), mpi.ErrRange),
		win.Put(one, other, there+long-1), win.Put(nil, other, there+long), win.FlushAll(),
		win.Put(one, world.Rank(), own), win.UnlockAll(), mpi.Barrier(world)); err != nil {
		return err
	}
	if mem[0] != 1 || mem[len(mem)-1] != 1 || mem[1] != 0 {
		return fmt.Errorf("the attached memory: %v", mem)
	}
	return firstError(win.Detach(own), wantError("Detach twice", win.Detach(own), mpi.ErrRange),
		mpi.Barrier(world), win.Fence(), wantError("Put after Detach", win.Put(one, other, there), mpi.ErrRange),
		win.Fence(), wantKind(world, win), plain.Free(), win.Free(),
		wantError("Detach after Free", win.Detach(empty), mpi.ErrWin))
})

// wantKind has the ranks make windows of different kinds, which come about at none.
func wantKind(world *mpi.Comm, _ *mpi.Win[int32]) (err error) {
	if world.Rank() == 0 {
		_, err = mpi.WinCreateDynamic[int32](world)
	} else {
		_, err = mpi.WinAllocate[int32](world, 1)
	}
	return wantError("windows of different kinds", err, mpi.ErrWin)
}

func TestDetachWaitsForOperations(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, detachWaits, fabric) })
}

// Ranks attach and detach while others put: each Put lands in memory that is attached, or fails at its caller;
// the owner's memory stays as it is when Detach has returned.
var detachWaits = body("detach waits", func(_ context.Context, world *mpi.Comm) error {
	const rounds, n = 100, 64
	win, err := mpi.WinCreateDynamic[int64](world)
	if err := firstError(err, win.LockAll()); err != nil {
		return err
	}
	if world.Rank() == 0 {
		spare := make([]int64, 2*n)
		for i := range rounds {
			mem := spare[i%2*n:][:n]
			clear(mem)
			at, err := win.Attach(mem)
			if err := firstError(err, mpi.Send(world, []int{at}, 1, 0)); err != nil {
				return err
			}
			if _, err := mpi.Recv(world, []int{0}, 1, 1); err != nil { // some are under way
				return err
			}
			if err := win.Detach(at); err != nil {
				return err
			}
			before := append([]int64(nil), mem...)
			if err := mpi.Send(world, []int{0}, 1, 2); err != nil {
				return err
			}
			if _, err := mpi.Recv(world, []int{0}, 1, 3); err != nil {
				return err
			}
			for k := range mem {
				if mem[k] != before[k] {
					return fmt.Errorf("round %d: element %d has changed after Detach", i, k)
				}
			}
		}
		return firstError(win.UnlockAll(), win.Free())
	}
	for i := range rounds {
		at := []int{0}
		if _, err := mpi.Recv(world, at, 0, 0); err != nil {
			return err
		}
		values := make([]int64, n)
		for k := range values {
			values[k] = int64(i + 1)
		}
		if err := firstError(win.Put(values, 0, at[0]), mpi.Send(world, []int{0}, 0, 1)); err != nil {
			return err
		}
		refused := 0
		for range 20 {
			err := firstError(win.Put(values, 0, at[0]), win.Flush(0))
			if err != nil && !errors.Is(err, mpi.ErrRange) {
				return err
			}
			if err != nil {
				refused++
			}
		}
		if _, err := mpi.Recv(world, []int{0}, 0, 2); err != nil {
			return err
		}
		if err := firstError(wantError("Put after Detach", win.Put(values, 0, at[0]), mpi.ErrRange),
			mpi.Send(world, []int{0}, 0, 3)); err != nil {
			return err
		}
	}
	return firstError(win.UnlockAll(), win.Free())
})

func TestUserGoesOnWhileDetachWaits(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, userGoesOn, fabric) })
}

// Rank 1 detaches memory of which rank 0 is a user. Until it flushes, all its operations there are carried
// out, while rank 2 finds the memory gone.
var userGoesOn = body("user goes on", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinCreateDynamic[int64](world)
	if err != nil {
		return err
	}
	mem, at := make([]int64, 100), make([]int, 1)
	if world.Rank() == 1 {
		at[0], err = win.Attach(mem)
	}
	if err := firstError(err, mpi.Bcast(world, at, 1), win.LockAll()); err != nil {
		return err
	}
	switch world.Rank() {
	case 0:
		back := make([]int64, 80)
		if err := firstError(win.Put([]int64{1}, 1, at[0]), mpi.Send(world, []int{0}, 1, 0)); err != nil {
			return err
		}
		if _, err := mpi.Recv(world, []int{0}, 2, 0); err != nil { // Detach has been called
			return err
		}
		was, err := win.FetchAndOp(5, 1, at[0]+1, mpi.Sum[int64]())
		swapped, err2 := win.CompareAndSwap(5, 7, 1, at[0]+1)
		if err := firstError(err, err2, want("FetchAndOp", was, 0), want("CompareAndSwap", swapped, 5),
			win.Accumulate(make([]int64, 80), 1, at[0]+2, mpi.Max[int64]()),
			win.GetAccumulate(make([]int64, 80), back, 1, at[0]+2, mpi.Replace[int64]()),
			win.Put([]int64{3}, 1, at[0]+99), win.Flush(1)); err != nil {
			return err
		}
	case 1:
		if _, err := mpi.Recv(world, []int{0}, 0, 0); err != nil {
			return err
		}
		if err := firstError(win.Detach(at[0]), want("what was put", mem[0], 1),
			want("what was swapped", mem[1], 7), want("what was put later", mem[99], 3)); err != nil {
			return err
		}
	case 2:
		for err == nil {
			err = firstError(win.Put([]int64{0}, 1, at[0]+98), win.Flush(1))
		}
		if err := firstError(wantError("Put after Detach", err, mpi.ErrRange),
			mpi.Send(world, []int{0}, 0, 0)); err != nil {
			return err
		}
	}
	return firstError(win.UnlockAll(), win.Free())
})

func TestPositionsThatNeverWere(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 2, neverWere, fabric) })
}

// One goroutine puts to what is attached, while another asks for numbers that were never given, of which some
// have the same place in the table. Each gets what it would get alone.
var neverWere = body("positions that never were", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinCreateDynamic[int64](world)
	if err != nil {
		return err
	}
	mine, at, err := attachBoth(world, win, 1<<15)
	if err := firstError(err, win.LockAll()); err != nil {
		return err
	}
	other := 1 - world.Rank()
	block, refused := make([]int64, len(mine[0])), make(chan error)
	go func() {
		var err error
		for i := range 1000 {
			at := at[other][i%2] + (1+i%3)<<(34+12)
			err = firstError(err, wantError("Put to nothing", win.Put(block[:1], other, at), mpi.ErrRange))
		}
		refused <- err
	}()
	for i := range 200 {
		for _, at := range at[other] {
			err = firstError(err, win.Put(block[:len(block)-i], other, at), win.Flush(other))
		}
	}
	return firstError(<-refused, err, win.UnlockAll(), mpi.Barrier(world), win.Free())
})

func TestManyAttachments(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, manyAttachments, fabric) })
}

// A rank attaches as much as there is room for, in any order; a position is never given twice.
var manyAttachments = body("many attachments", func(_ context.Context, world *mpi.Comm) error {
	const maxAttached = 4096
	win, err := mpi.WinCreateDynamic[int64](world)
	if err != nil {
		return err
	}
	mem := make([]int64, maxAttached)
	at := make([]int, maxAttached)
	if world.Rank() == 0 {
		seen := map[int]bool{}
		for round := range 2 {
			for i := range at {
				if at[i], err = win.Attach(mem[i : i+1]); err != nil || seen[at[i]] {
					return fmt.Errorf("round %d, Attach %d: %d, %w", round, i, at[i], err)
				}
				seen[at[i]] = true
			}
			if _, err := win.Attach(mem[:1]); !errors.Is(err, mpi.ErrBuffer) {
				return fmt.Errorf("Attach of one too many: %w", err)
			}
			for i := 0; round == 0 && i < maxAttached; i++ {
				if err := win.Detach(at[i*7%maxAttached]); err != nil {
					return err
				}
			}
		}
	}
	if err := firstError(mpi.Bcast(world, at, 0), win.Fence()); err != nil {
		return err
	}
	if world.Rank() == 1 {
		for i := 0; i < maxAttached; i += 37 {
			if err := win.Put([]int64{int64(i)}, 0, at[i]); err != nil {
				return err
			}
		}
	}
	if err := win.Fence(); err != nil {
		return err
	}
	for i := 0; world.Rank() == 0 && i < maxAttached; i += 37 {
		if mem[i] != int64(i) {
			return fmt.Errorf("attachment %d has %d", i, mem[i])
		}
	}
	return win.Free()
})

func TestDetachFromAKilledRank(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		j := begin(t, 2, detachKilled, fabric, "WEFT_PEER_TIMEOUT=2s")
		j.says(1, "has put")
		j.says(0, "has received") // a message of a rank that is killed meanwhile may fail
		j.signal(1, syscall.SIGKILL)
		j.says(0, "process failed")
	})
}

// Rank 1 is killed while its Put is not flushed: Detach does not wait for it for ever.
var detachKilled = body("detach from a killed rank", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinCreateDynamic[int64](world)
	if err != nil {
		return err
	}
	at := make([]int, 1)
	if world.Rank() == 0 {
		if at[0], err = win.Attach(make([]int64, 100)); err != nil {
			return err
		}
	}
	if err := firstError(mpi.Bcast(world, at, 0), win.LockAll()); err != nil {
		return err
	}
	if world.Rank() == 1 {
		if err := firstError(win.Put(make([]int64, 100), 0, at[0]), mpi.Ssend(world, at, 0, 0)); err != nil {
			return err
		}
		fmt.Println("has put")
		select {} // until it is killed
	}
	if _, err := mpi.Recv(world, at, 1, 0); err != nil { // it has put
		return err
	}
	fmt.Println("has received")
	err = win.Detach(at[0])
	if err == nil || !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("Detach: %w", err)
	}
	fmt.Println("process failed")
	os.Exit(0)
	return nil
})
