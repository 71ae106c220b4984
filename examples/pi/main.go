// Pi computes π as the area under 4/(1+x²) from 0 to 1.
//
//	weft run -n 4 ./examples/pi
//	weft run -n 4 ./examples/pi -intervals 1000000000
//
// It shows how ranks share work that falls into independent parts: Bcast tells all of them what there is to
// do, each does its part, and Reduce adds up what they found. No rank waits for another in between.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("pi: ")
	if err := mpi.Run(context.Background(), pi); err != nil {
		log.Fatal(err)
	}
}

func pi(_ context.Context, world *mpi.Comm) error {
	// Rank 0 alone reads the flags, so a wrong one is complained about once. The error that it returns ends
	// the whole job.
	intervals := make([]int64, 1)
	if world.Rank() == 0 {
		var err error
		if intervals[0], err = parse(os.Args[1:]); err != nil {
			return err
		}
	}
	// A collective call is made by every rank, with the same root: it sends at the root, and receives at the
	// others.
	if err := mpi.Bcast(world, intervals, 0); err != nil {
		return err
	}
	n := intervals[0]
	if n == 0 {
		return nil // rank 0 was asked for help
	}

	mine := []float64{part(n, world.Rank(), world.Size())}
	whole := make([]float64, 1) // is filled in at the root alone
	if err := mpi.Reduce(world, mine, whole, mpi.Sum[float64](), 0); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("pi = %.15f from %d intervals on %d ranks, wrong by %.3g\n", whole[0], n, world.Size(),
			math.Abs(whole[0]-math.Pi))
	}
	return nil
}

// part is a rank's share of the area. Each interval counts as a rectangle as high as the curve is in the
// interval's middle. The rank takes every size-th interval, from its own number on, so any number of
// intervals goes with any number of ranks.
func part(intervals int64, rank, size int) float64 {
	width := 1 / float64(intervals)
	sum := 0.0
	for i := int64(rank); i < intervals; i += int64(size) {
		x := (float64(i) + 0.5) * width
		sum += 4 / (1 + x*x)
	}
	return sum * width
}

// maxIntervals is as many as a float64 can count. It would take months.
const maxIntervals = 1 << 53

// parse reads the flags. When help is asked for it prints it and returns no intervals.
func parse(args []string) (intervals int64, err error) {
	flags := flag.NewFlagSet("pi", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.Int64Var(&intervals, "intervals", 10_000_000, "number of rectangles that the area is cut into")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("pi computes the area under 4/(1+x²): weft run -n RANKS ./examples/pi [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return 0, nil
	case err != nil:
		return 0, err
	case flags.NArg() > 0:
		return 0, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	case intervals < 1 || intervals > maxIntervals:
		return 0, fmt.Errorf("-intervals %d: must be from 1 to %d", intervals, int64(maxIntervals))
	}
	return intervals, nil
}
