package mpi_test

import (
	"context"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

func ExampleBcast() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		buf := make([]int, 2)
		if world.Rank() == 0 {
			buf[0], buf[1] = 640, 480
		}
		if err := mpi.Bcast(world, buf, 0); err != nil {
			return err
		}
		fmt.Println("rank", world.Rank(), "has", buf)
		return nil
	})
	// Unordered output:
	// rank 0 has [640 480]
	// rank 1 has [640 480]
	// rank 2 has [640 480]
}

// Rank 0 reads the options, and all ranks get them.
func ExampleBcastValue() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		type options struct {
			Input string
			Steps int
		}
		var o options
		if world.Rank() == 0 {
			o = options{"rod.txt", 100}
		}
		o, err := mpi.BcastValue(world, o, 0)
		if err != nil {
			return err
		}
		fmt.Println(o.Input, o.Steps)
		return nil
	})
	// Output:
	// rod.txt 100
	// rod.txt 100
}

// Only rank 0 gets the sums, one for each element.
func ExampleReduce() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		in, out := []int{world.Rank(), 1}, make([]int, 2)
		if err := mpi.Reduce(world, in, out, mpi.Sum[int](), 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(out)
		}
		return nil
	})
	// Output: [3 3]
}

// All ranks get the maximum.
func ExampleAllreduce() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		in, out := []float64{float64(world.Rank()) / 4}, make([]float64, 1)
		if err := mpi.Allreduce(world, in, out, mpi.Max[float64]()); err != nil {
			return err
		}
		fmt.Println(out[0])
		return nil
	})
	// Output:
	// 0.5
	// 0.5
	// 0.5
}

// With InPlace the input is in the output's slice.
func ExampleInPlace() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		sums := []int{1, 10, 100}
		if err := mpi.Allreduce(world, mpi.InPlace[int](), sums, mpi.Sum[int]()); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(sums)
		}
		return nil
	})
	// Output: [2 20 200]
}

// One value of each rank needs no slices.
func ExampleAllreduceValue() {
	run(4, func(_ context.Context, world *mpi.Comm) error {
		found := world.Rank() == 2 // whatever this rank has found
		n := 0
		if found {
			n = 1
		}
		total, err := mpi.AllreduceValue(world, n, mpi.Sum[int]())
		if err == nil && world.Rank() == 0 {
			fmt.Println(total, "of", world.Size(), "ranks have found it")
		}
		return err
	})
	// Output: 1 of 4 ranks have found it
}

// MaxLoc says where the maximum is, too.
func ExampleMaxLoc() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		mine := mpi.Loc[float64]{Value: []float64{0.1, 0.7, 0.3}[world.Rank()], Index: int64(world.Rank())}
		worst, err := mpi.AllreduceValue(world, mine, mpi.MaxLoc[float64]())
		if err == nil && world.Rank() == 0 {
			fmt.Println(worst.Value, "at rank", worst.Index)
		}
		return err
	})
	// Output: 0.7 at rank 1
}

// An operator of the program: the product of complex numbers.
func ExampleNewOp() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		times := mpi.NewOp(func(inout, in []complex128) {
			for i := range inout {
				inout[i] *= in[i]
			}
		}, true)
		product, err := mpi.AllreduceValue(world, 2i, times)
		if err == nil && world.Rank() == 0 {
			fmt.Println(product)
		}
		return err
	})
	// Output: (-4+0i)
}

// Rank 0 gets a block of the same length from each rank.
func ExampleGather() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		in := []int{world.Rank(), world.Rank() * world.Rank()}
		var out []int
		if world.Rank() == 0 {
			out = make([]int, len(in)*world.Size())
		}
		if err := mpi.Gather(world, in, out, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(out)
		}
		return nil
	})
	// Output: [0 0 1 1 2 4]
}

// Rank 0 gets parts of different lengths; it has to know the lengths.
func ExampleGatherv() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		const n = 7
		first, count := mpi.Part(n, world.Rank(), world.Size())
		in := make([]int, count)
		for i := range in {
			in[i] = 10 * (first + i)
		}
		var out, counts []int
		if world.Rank() == 0 {
			out = make([]int, n)
			for rank := range world.Size() {
				_, count := mpi.Part(n, rank, world.Size())
				counts = append(counts, count)
			}
		}
		if err := mpi.Gatherv(world, in, out, counts, nil, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(counts, out)
		}
		return nil
	})
	// Output: [3 2 2] [0 10 20 30 40 50 60]
}

// Rank 0 gets a value of any type from each rank.
func ExampleGatherValues() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		names, err := mpi.GatherValues(world, fmt.Sprint("rank ", world.Rank()), 0)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%q\n", names)
		}
		return err
	})
	// Output: ["rank 0" "rank 1" "rank 2"]
}

// Rank 0 has a block for each rank.
func ExampleScatter() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		var in []string // no buffer: strings have pointers
		var letters []byte
		if world.Rank() == 0 {
			in = []string{"warp", "weft"}
			letters = []byte(in[0] + in[1])
		}
		mine := make([]byte, 4)
		if err := mpi.Scatter(world, letters, mine, 0); err != nil {
			return err
		}
		fmt.Printf("rank %d has %s\n", world.Rank(), mine)
		return nil
	})
	// Unordered output:
	// rank 0 has warp
	// rank 1 has weft
}

// Rank 0 deals out values of any type, and gets what the ranks make of them.
func ExampleScatterValues() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		var names []string
		if world.Rank() == 0 {
			names = []string{"warp", "weft", "shuttle"} // one for each rank
		}
		name, err := mpi.ScatterValues(world, names, 0)
		if err != nil {
			return err
		}
		longest, err := mpi.ReduceValue(world, len(name), mpi.Max[int](), 0)
		if err == nil && world.Rank() == 0 {
			fmt.Println(longest)
		}
		return err
	})
	// Output: 7
}

// All ranks get the blocks of all.
func ExampleAllgather() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		out := make([]int, world.Size())
		if err := mpi.Allgather(world, []int{world.Rank() + 1}, out); err != nil {
			return err
		}
		fmt.Println(out)
		return nil
	})
	// Output:
	// [1 2 3]
	// [1 2 3]
	// [1 2 3]
}

// Each rank has a block for each rank: a transpose.
func ExampleAlltoall() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		in, out := make([]int, world.Size()), make([]int, world.Size())
		for rank := range in {
			in[rank] = 10*world.Rank() + rank
		}
		if err := mpi.Alltoall(world, in, out); err != nil {
			return err
		}
		fmt.Println("rank", world.Rank(), "has", out)
		return nil
	})
	// Unordered output:
	// rank 0 has [0 10 20]
	// rank 1 has [1 11 21]
	// rank 2 has [2 12 22]
}

// Ranks send to some ranks, which do not know who will send to them.
func ExampleExchange() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		to := map[int][]int{}
		if world.Rank() > 0 {
			to[0] = []int{world.Rank(), 100 * world.Rank()}
		}
		from, err := mpi.Exchange(world, to)
		if err == nil && world.Rank() == 0 {
			fmt.Println(from)
		}
		return err
	})
	// Output: map[1:[1 100] 2:[2 200]]
}

// Scan gives each rank the sum up to its own value.
func ExampleScan() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		out := make([]int, 1)
		if err := mpi.Scan(world, []int{world.Rank() + 1}, out, mpi.Sum[int]()); err != nil {
			return err
		}
		fmt.Println("rank", world.Rank(), "has", out[0])
		return nil
	})
	// Unordered output:
	// rank 0 has 1
	// rank 1 has 3
	// rank 2 has 6
}

// ExscanValue gives each rank the sum of the ranks before it: where its lines begin, for example.
func ExampleExscanValue() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		lines := []int{5, 2, 4}[world.Rank()]
		first, err := mpi.ExscanValue(world, lines, mpi.Sum[int]())
		if err == nil {
			fmt.Println("rank", world.Rank(), "begins at line", first)
		}
		return err
	})
	// Unordered output:
	// rank 0 begins at line 0
	// rank 1 begins at line 5
	// rank 2 begins at line 7
}

// A rank computes while a reduction is under way.
func ExampleIallreduce() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		sum := make([]float64, 1)
		request, err := mpi.Iallreduce(world, []float64{0.25}, sum, mpi.Sum[float64]())
		if err != nil {
			return err
		}
		// Compute here. sum must not be read until the request is complete.
		if _, err := request.Wait(); err != nil {
			return err
		}
		fmt.Println(sum[0])
		return nil
	})
	// Output:
	// 0.5
	// 0.5
}
