package mpi_test

import (
	"context"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// Each rank writes into its right neighbor's memory. A Fence before and after makes the Puts complete.
func ExampleWin_Put() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		w, err := mpi.WinAllocate[int](world, 1)
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		right := (world.Rank() + 1) % world.Size()
		if err := w.Put([]int{world.Rank()}, right, 0); err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		fmt.Println("rank", world.Rank(), "has", w.Local()[0])
		return w.Free()
	})
	// Unordered output:
	// rank 0 has 2
	// rank 1 has 0
	// rank 2 has 1
}

// Rank 1 reads rank 0's memory, while rank 0 makes no call for it.
func ExampleWin_Get() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		table := []float64{1, 0.5, 0.25} // of each rank
		w, err := mpi.WinCreate(world, table)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			got := make([]float64, 2)
			if err := w.Lock(0, mpi.Shared); err != nil {
				return err
			}
			if err := w.Get(got, 0, 1); err != nil { // two elements, from element 1 on
				return err
			}
			if err := w.Unlock(0); err != nil { // got is there from here on
				return err
			}
			fmt.Println(got)
		}
		return w.Free()
	})
	// Output: [0.5 0.25]
}

// All ranks add to a histogram at rank 0.
func ExampleWin_Accumulate() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](world, 3)
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		for bin := range world.Rank() + 1 {
			if err := w.Accumulate([]int64{1}, 0, bin, mpi.Sum[int64]()); err != nil {
				return err
			}
		}
		if err := w.Fence(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(w.Local())
		}
		return w.Free()
	})
	// Output: [3 2 1]
}

// A counter at rank 0 deals out numbers, each once.
func ExampleWin_FetchAndOp() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](world, 1)
		if err != nil {
			return err
		}
		if err := w.LockAll(); err != nil {
			return err
		}
		ticket, err := w.FetchAndOp(1, 0, 0, mpi.Sum[int64]())
		if err != nil {
			return err
		}
		fmt.Println("ticket", ticket)
		if err := w.UnlockAll(); err != nil {
			return err
		}
		return w.Free()
	})
	// Unordered output:
	// ticket 0
	// ticket 1
	// ticket 2
}

// One rank alone finds the element unchanged, and sets it.
func ExampleWin_CompareAndSwap() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](world, 1)
		if err != nil {
			return err
		}
		if err := w.LockAll(); err != nil {
			return err
		}
		old, err := w.CompareAndSwap(0, 1, 0, 0)
		if err != nil {
			return err
		}
		if old == 0 {
			fmt.Println("a rank is first")
		}
		if err := w.UnlockAll(); err != nil {
			return err
		}
		return w.Free()
	})
	// Output: a rank is first
}

// Ranks of a host read one another's memory as their own.
func ExampleWinAllocateShared() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		host, err := world.SplitShared()
		if err != nil {
			return err
		}
		w, err := mpi.WinAllocateShared[int](host, 1)
		if err != nil {
			return err
		}
		w.Local()[0] = 10 * (host.Rank() + 1)
		if err := w.Fence(); err != nil {
			return err
		}
		sum := 0
		for rank := range host.Size() {
			sum += w.Of(rank)[0]
		}
		fmt.Println(sum)
		if err := w.Free(); err != nil {
			return err
		}
		return host.Free()
	})
	// Output:
	// 30
	// 30
}
