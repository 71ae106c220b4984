// Fft solves Poisson's equation, Δu = f, on a periodic square by a two-dimensional fast Fourier transform.
//
//	weft run -n 4 ./examples/fft
//	weft run -n 4 ./examples/fft -size 2048 -repeat 3
//
// In the space of frequencies the Laplacian Δ is a multiplication by -(kx²+ky²). So the program transforms f,
// divides, and transforms back. It computes f from a function u that it knows, and so it can tell how wrong
// the answer is.
//
// It shows a transpose, in which every rank gives something to every other:
//
//   - each rank has some rows of the grid, and transforms them without the others (transform.go);
//   - Alltoall gives each rank a block of the rows of all ranks, which makes the columns rows (transpose.go);
//   - the division is done where the data are, transposed as they are, and so a solution takes two transposes
//     instead of four (poisson.go).
//
// The ranks have the same number of rows, and so their number is a power of two: of other numbers, some ranks
// stay idle.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/bits"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("fft: ")
	if err := mpi.Run(context.Background(), fft); err != nil {
		log.Fatal(err)
	}
}

const (
	maxSize = 1 << 15 // 16 GiB of complex numbers

	// tolerance is how far the solution may be from the known one, which is at most 1. Rounding alone makes a
	// difference, which grows with the logarithm of the size.
	tolerance = 1e-11
)

// problem has the settings that every rank needs.
type problem struct {
	Size   int // rows of the grid, and columns; 0 if there is nothing to do
	Repeat int
}

func fft(_ context.Context, world *mpi.Comm) error {
	var p problem
	if world.Rank() == 0 {
		var err error
		if p, err = parse(os.Args[1:]); err != nil {
			return err
		}
	}
	p, err := mpi.BcastValue(world, p, 0)
	if err != nil || p.Size == 0 {
		return err // without a size rank 0 was asked for help
	}
	some, err := sharing(world, p.Size)
	if err != nil || some == nil {
		return err
	}
	if err := solve(some, p); err != nil {
		return err
	}
	return some.Free()
}

// sharing is a communicator of the ranks that share a number of rows equally, as many as there can be. The
// other ranks get nil.
func sharing(world *mpi.Comm, rows int) (*mpi.Comm, error) {
	ranks := 1
	for 2*ranks <= min(world.Size(), rows) {
		ranks *= 2
	}
	if world.Rank() < ranks {
		return world.Split(0, world.Rank())
	}
	return world.Split(mpi.Undefined, 0)
}

// solve solves the problem, and tells at rank 0 how wrong the answer is.
func solve(world *mpi.Comm, p problem) error {
	g := newGrid(world, p.Size)
	begin := mpi.Wtime()
	for range p.Repeat {
		g.fill(source)
		if err := g.solve(); err != nil {
			return err
		}
	}
	seconds := (mpi.Wtime() - begin) / float64(p.Repeat)

	wrong, err := mpi.AllreduceValue(world, g.difference(solution), mpi.Max[float64]())
	if err != nil {
		return err
	}
	if !(wrong <= tolerance) { // not a number, too
		return fmt.Errorf("rank %d: the solution is wrong by %.3g; rounding explains at most %.3g",
			world.Rank(), wrong, tolerance)
	}
	if world.Rank() == 0 {
		took := time.Duration(seconds * float64(time.Second))
		fmt.Printf("Poisson's equation on %d × %d points solved by %d ranks in %v, wrong by at most %.2g\n",
			p.Size, p.Size, world.Size(), took.Round(10*time.Microsecond), wrong)
	}
	return nil
}

// parse reads the flags. When help is asked for it prints it and returns the zero problem.
func parse(args []string) (problem, error) {
	var p problem
	flags := flag.NewFlagSet("fft", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&p.Size, "size", 512, "rows and columns of points, a power of two")
	flags.IntVar(&p.Repeat, "repeat", 1, "solve it so many times, for the average time")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("fft solves Poisson's equation: weft run -n RANKS ./examples/fft [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return problem{}, nil
	case err != nil:
		return problem{}, err
	case flags.NArg() > 0:
		return problem{}, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	case p.Size < 16 || p.Size > maxSize || bits.OnesCount(uint(p.Size)) != 1:
		return problem{}, fmt.Errorf("-size %d: must be a power of two from 16 to %d", p.Size, maxSize)
	case p.Repeat < 1:
		return problem{}, fmt.Errorf("-repeat %d: must be 1 or more", p.Repeat)
	}
	return p, nil
}
