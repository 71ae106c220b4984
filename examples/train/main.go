// Train trains a small neural network by data-parallel gradient descent: it learns to which of two spirals a
// point belongs.
//
//	weft run -n 4 ./examples/train
//	weft run -n 4 ./examples/train -epochs 150 -hidden 48 -seed 3
//
// All ranks have the same network. Of each batch of points every rank takes a part, and computes in which
// direction the weights should change for these; the sum over the ranks is the direction for the batch. So
// any number of ranks trains the same network, but for rounding.
//
// It shows communication that is hidden by computation:
//
//   - back-propagation computes the gradients layer by layer, from the last one to the first. As soon as a
//     layer's gradient is there, Iallreduce begins to add it up, while the gradient of the layer before it is
//     being computed; Waitall ends all of them before the weights change (step.go);
//   - all ranks begin their Iallreduces in the same order, which is what pairs them, although several are
//     under way at once.
//
// At the end the ranks verify that they have the same weights, to the last bit: Allreduce gives all ranks
// equal sums, so the networks never drift apart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math"
	"os"
	"slices"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("train: ")
	if err := mpi.Run(context.Background(), train); err != nil {
		log.Fatal(err)
	}
}

// problem has the settings that every rank needs.
type problem struct {
	Epochs int // passes over all points; 0 if there is nothing to do
	Points int
	Batch  int
	Hidden int
	Rate   float64
	Seed   uint64
}

func train(_ context.Context, world *mpi.Comm) error {
	var p problem
	if world.Rank() == 0 {
		var err error
		if p, err = parse(os.Args[1:]); err != nil {
			return err
		}
	}
	p, err := mpi.BcastValue(world, p, 0)
	if err != nil || p.Epochs == 0 {
		return err // without epochs rank 0 was asked for help
	}
	// Every rank makes the same points and the same network: both follow from the seed.
	data, net := spirals(p.Points, p.Seed), newNetwork(p.Hidden, p.Seed)
	begin := mpi.Wtime()
	t := newTrainer(world, net, p)
	for epoch := range p.Epochs {
		loss, err := t.epoch(data, epoch)
		if err != nil {
			return err
		}
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return fmt.Errorf("rank %d: epoch %d: the loss is %v; use a smaller -rate", world.Rank(), epoch+1,
				loss)
		}
		if world.Rank() == 0 && ((epoch+1)%10 == 0 || epoch+1 == p.Epochs) {
			fmt.Printf("epoch %4d  loss %.12f\n", epoch+1, loss)
		}
	}
	seconds := mpi.Wtime() - begin
	if err := agree(world, net); err != nil || world.Rank() != 0 {
		return err
	}
	took := time.Duration(seconds * float64(time.Second))
	fmt.Printf("%.1f %% of %d points recognized, after %d epochs on %d ranks in %v; all ranks have the same "+
		"weights\n", 100*net.accuracy(data), p.Points, p.Epochs, world.Size(), took.Round(time.Millisecond))
	return nil
}

// agree finds out whether all ranks have the same weights.
func agree(world *mpi.Comm, net *network) error {
	h := fnv.New64a()
	for _, l := range net.layers {
		for _, w := range l.weights {
			fmt.Fprintf(h, "%x", math.Float64bits(w))
		}
	}
	sums, err := mpi.AllgatherValues(world, h.Sum64())
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(sums, func(s uint64) bool { return s != sums[0] }); i >= 0 {
		return fmt.Errorf("rank %d: the weights of rank %d are not those of rank 0", world.Rank(), i)
	}
	return nil
}

// parse reads the flags. When help is asked for it prints it and returns the zero problem.
func parse(args []string) (problem, error) {
	var p problem
	flags := flag.NewFlagSet("train", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&p.Epochs, "epochs", 60, "number of passes over all points")
	flags.IntVar(&p.Points, "points", 2000, "number of points")
	flags.IntVar(&p.Batch, "batch", 64, "points between two changes of the weights, of all ranks together")
	flags.IntVar(&p.Hidden, "hidden", 24, "width of the two layers between input and output")
	flags.Float64Var(&p.Rate, "rate", 0.003, "size of a change of the weights")
	flags.Uint64Var(&p.Seed, "seed", 1, "number that the points and the first weights follow from")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("train trains a small neural network: weft run -n RANKS ./examples/train [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return problem{}, nil
	case err != nil:
		return problem{}, err
	case flags.NArg() > 0:
		return problem{}, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	}
	for _, f := range []struct {
		name           string
		value, largest int
	}{{"epochs", p.Epochs, 1 << 30}, {"points", p.Points, 1 << 26}, {"batch", p.Batch, 1 << 26},
		{"hidden", p.Hidden, 1 << 12}} {
		if f.value < 1 || f.value > f.largest {
			return problem{}, fmt.Errorf("-%s %d: must be from 1 to %d", f.name, f.value, f.largest)
		}
	}
	if !(p.Rate > 0 && p.Rate <= 1) { // not a number, too
		return problem{}, fmt.Errorf("-rate %v: must be above 0 and at most 1", p.Rate)
	}
	return p, nil
}
