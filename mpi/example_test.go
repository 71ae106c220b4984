package mpi_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/weft-mpi/weft/mpi"
)

// Goroutines mark their parts of a message as they finish them, and the receiver uses each part when it has
// arrived.
func ExamplePsendInit() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		const parts, length = 4, 1000
		me, size := world.Rank(), world.Size()
		out, in := make([]float64, parts*length), make([]float64, parts*length)
		s, err := mpi.PsendInit(world, out, parts, (me+1)%size, 0)
		if err != nil {
			return err
		}
		r, err := mpi.PrecvInit(world, in, parts, (me+size-1)%size, 0)
		if err != nil {
			return err
		}
		for range 10 {
			if err := r.Start(); err != nil {
				return err
			}
			if err := s.Start(); err != nil {
				return err
			}
			var group sync.WaitGroup
			for part := range parts {
				group.Go(func() {
					for i := part * length; i < (part+1)*length; i++ {
						out[i] = float64(i)
					}
					if err := s.Pready(part); err != nil {
						log.Print(err)
					}
				})
			}
			group.Wait()
			if _, err := s.Wait(); err != nil {
				return err
			}
			if _, err := r.Wait(); err != nil {
				return err
			}
		}
		if err := s.Free(); err != nil {
			return err
		}
		return r.Free()
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A library keeps what belongs to it with a communicator; duplicates get a copy of their own.
func ExampleNewKey() {
	type cache map[string]int
	key := mpi.NewKey(func(c cache) (cache, bool) { return cache{}, true }, nil)
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if err := key.Set(world, cache{"calls": 7}); err != nil {
			return err
		}
		dup, err := world.Dup()
		if err != nil {
			return err
		}
		of, _ := key.Get(dup)
		fmt.Println(len(of)) // 0
		return dup.Free()
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Ranks that share a cache work on a part of the items together.
func ExampleComm_SplitBy() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		near, err := world.SplitBy(mpi.SameL3, world.Rank())
		if err != nil || near == nil { // nil where the system does not tell
			return err
		}
		first, count := mpi.Part(1000, near.Rank(), near.Size())
		fmt.Println("items", first, "to", first+count-1)
		return near.Free()
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Rank 0 deals out values of any type, and gets what the ranks make of them.
func ExampleScatterValues() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		var names []string
		if world.Rank() == 0 {
			for i := range world.Size() {
				names = append(names, fmt.Sprint("part ", i))
			}
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
	if err != nil {
		log.Fatal(err)
	}
}

// The ranks transpose a matrix of which each has some rows: each sends the others columns of its rows, and
// transposes what it gets.
func ExampleAlltoallView() {
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		const rows = 2 // of each rank
		n := rows * world.Size()
		matrix, transposed := make([]float64, rows*n), make([]float64, rows*n)
		var in, out []mpi.View[float64]
		for rank := range world.Size() {
			in = append(in, mpi.Sub(matrix, []int{rows, n}, []int{0, rank * rows}, []int{rows, rows}))
			out = append(out, mpi.Sub(transposed, []int{rows, n}, []int{0, rank * rows}, []int{rows, rows}))
		}
		if err := mpi.AlltoallView(world, in, out); err != nil {
			return err
		}
		for at := 0; at < n; at += rows { // each block is in place, and is transposed here
			for i := range rows {
				for j := range i {
					a, b := &transposed[i*n+at+j], &transposed[j*n+at+i]
					*a, *b = *b, *a
				}
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
