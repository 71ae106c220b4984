package mpi_test

import (
	"context"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// A column of a matrix is sent as it lies in memory, and received as a column of another.
func ExampleStrided() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		const rows, columns = 3, 4
		matrix := make([]int, rows*columns)
		last := mpi.Strided(matrix[columns-1:], rows, 1, columns)
		first := mpi.Strided(matrix, rows, 1, columns)
		if world.Rank() == 0 {
			for i := range matrix {
				matrix[i] = i
			}
			return mpi.SendView(world, last, 1, 0)
		}
		if _, err := mpi.RecvView(world, first, 0, 0); err != nil {
			return err
		}
		fmt.Println(matrix)
		return nil
	})
	// Output: [3 0 0 0 7 0 0 0 11 0 0 0]
}

// A block of a matrix.
func ExampleSub() {
	matrix := []int{
		11, 12, 13, 14,
		21, 22, 23, 24,
		31, 32, 33, 34,
	}
	block := mpi.Sub(matrix, []int{3, 4}, []int{1, 1}, []int{2, 3})
	packed := make([]int, block.Len())
	block.Pack(packed)
	fmt.Println(packed)
	// Output: [22 23 24 32 33 34]
}

// Elements in any order.
func ExampleIndexed() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			words := []byte("shuttle")
			return mpi.SendView(world, mpi.Indexed(words, []int{1, 2, 4}, nil), 1, 0)
		}
		buf := make([]byte, 3)
		if _, err := mpi.Recv(world, buf, 0, 0); err != nil {
			return err
		}
		fmt.Printf("%s\n", buf)
		return nil
	})
	// Output: hut
}

// The ranks transpose a matrix of which each has some rows: each sends the others columns of its rows, and
// transposes what it gets.
func ExampleAlltoallView() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		const rows = 2 // of each rank
		n := rows * world.Size()
		matrix, transposed := make([]int, rows*n), make([]int, rows*n)
		for i := range matrix {
			matrix[i] = n*rows*world.Rank() + i
		}
		var in, out []mpi.View[int]
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
		fmt.Println("rank", world.Rank(), "has", transposed)
		return nil
	})
	// Unordered output:
	// rank 0 has [0 4 8 12 1 5 9 13]
	// rank 1 has [2 6 10 14 3 7 11 15]
}
