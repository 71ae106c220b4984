package mpi_test

import (
	"context"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// The ranks of a color get a communicator of their own, in which they are numbered by key.
func ExampleComm_Split() {
	run(4, func(_ context.Context, world *mpi.Comm) error {
		row := world.Rank() / 2
		c, err := world.Split(row, world.Rank())
		if err != nil {
			return err
		}
		sum, err := mpi.AllreduceValue(c, world.Rank(), mpi.Sum[int]())
		if err != nil {
			return err
		}
		fmt.Printf("row %d, rank %d of %d: %d\n", row, c.Rank(), c.Size(), sum)
		return c.Free()
	})
	// Unordered output:
	// row 0, rank 0 of 2: 1
	// row 0, rank 1 of 2: 1
	// row 1, rank 0 of 2: 5
	// row 1, rank 1 of 2: 5
}

// The ranks of a host get a communicator of their own.
func ExampleComm_SplitShared() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		host, err := world.SplitShared()
		if err != nil {
			return err
		}
		if host.Rank() == 0 {
			fmt.Println(host.Size(), "ranks on this host")
		}
		return host.Free()
	})
	// Output: 2 ranks on this host
}

// Ranks of a host work on a part of the items together. SameSocket, SameNUMA and SameL3 name smaller domains; a
// rank that the system does not say to be inside one gets nil.
func ExampleComm_SplitBy() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		near, err := world.SplitBy(mpi.SameHost, world.Rank())
		if err != nil || near == nil {
			return err
		}
		first, count := mpi.Part(1000, near.Rank(), near.Size())
		fmt.Println("items", first, "to", first+count-1)
		return near.Free()
	})
	// Unordered output:
	// items 0 to 499
	// items 500 to 999
}

// A library's messages never match those of the program if it has a communicator of its own.
func ExampleComm_Dup() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		library, err := world.Dup()
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			if err := mpi.SendValue(world, "of the program", 1, 0); err != nil {
				return err
			}
			if err := mpi.SendValue(library, "of the library", 1, 0); err != nil {
				return err
			}
			return library.Free()
		}
		for _, c := range []*mpi.Comm{library, world} {
			v, _, err := mpi.RecvValue[string](c, 0, 0)
			if err != nil {
				return err
			}
			fmt.Println(v)
		}
		return library.Free()
	})
	// Output:
	// of the library
	// of the program
}

// A communicator of all ranks but the first.
func ExampleComm_Create() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		workers, err := world.Group().Excl(0)
		if err != nil {
			return err
		}
		c, err := world.Create(workers)
		if err != nil || c == nil { // nil at rank 0
			return err
		}
		fmt.Printf("rank %d is worker %d of %d\n", world.Rank(), c.Rank(), c.Size())
		return c.Free()
	})
	// Unordered output:
	// rank 1 is worker 0 of 2
	// rank 2 is worker 1 of 2
}

// The ranks form a grid, and know their neighbors in it.
func ExampleComm_Cart() {
	run(4, func(_ context.Context, world *mpi.Comm) error {
		dims := []int{0, 0}
		if err := mpi.DimsCreate(world.Size(), dims); err != nil {
			return err
		}
		grid, err := world.Cart(dims, []bool{true, false}, false)
		if err != nil {
			return err
		}
		defer grid.Comm().Free()
		coords, err := grid.Coords(grid.Comm().Rank())
		if err != nil {
			return err
		}
		_, below := grid.Shift(0, 1) // periodic: the last row's is the first
		_, right := grid.Shift(1, 1) // ProcNull at the end
		fmt.Printf("rank %d at %v of %v: rank %d below, %d to the right\n", grid.Comm().Rank(), coords, dims,
			below, right)
		return nil
	})
	// Unordered output:
	// rank 0 at [0 0] of [2 2]: rank 2 below, 1 to the right
	// rank 1 at [0 1] of [2 2]: rank 3 below, -2 to the right
	// rank 2 at [1 0] of [2 2]: rank 0 below, 3 to the right
	// rank 3 at [1 1] of [2 2]: rank 1 below, -2 to the right
}

// Each rank of a ring exchanges an element with both neighbors: the one before it comes first.
func ExampleNeighborAlltoall() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		ring, err := world.Cart([]int{world.Size()}, []bool{true}, false)
		if err != nil {
			return err
		}
		defer ring.Comm().Free()
		out, in := []int{10 * world.Rank(), 10*world.Rank() + 1}, make([]int, 2)
		if err := mpi.NeighborAlltoall(ring, out, in); err != nil {
			return err
		}
		fmt.Println("rank", world.Rank(), "has", in)
		return nil
	})
	// Unordered output:
	// rank 0 has [21 10]
	// rank 1 has [1 20]
	// rank 2 has [11 0]
}

// A graph in which each rank knows only to whom it sends: here a tree.
func ExampleGraphOf() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		var children []int
		for child := 2*world.Rank() + 1; child <= 2*world.Rank()+2 && child < world.Size(); child++ {
			children = append(children, child)
		}
		tree, err := mpi.GraphOf(world, children)
		if err != nil {
			return err
		}
		defer tree.Comm().Free()
		from := make([]int, len(tree.Sources()))
		if err := mpi.NeighborAllgather(tree, []int{world.Rank()}, from); err != nil {
			return err
		}
		fmt.Printf("rank %d has heard from %v\n", world.Rank(), from)
		return nil
	})
	// Unordered output:
	// rank 0 has heard from []
	// rank 1 has heard from [0]
	// rank 2 has heard from [0]
}

// A library keeps what belongs to it with a communicator; duplicates get a copy of their own.
func ExampleNewKey() {
	run(1, func(_ context.Context, world *mpi.Comm) error {
		type cache map[string]int
		key := mpi.NewKey(func(c cache) (cache, bool) { return cache{}, true }, nil)
		if err := key.Set(world, cache{"calls": 7}); err != nil {
			return err
		}
		dup, err := world.Dup()
		if err != nil {
			return err
		}
		old, _ := key.Get(world)
		of, _ := key.Get(dup)
		fmt.Println(len(old), len(of))
		return dup.Free()
	})
	// Output: 1 0
}
