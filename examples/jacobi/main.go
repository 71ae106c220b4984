// Jacobi solves Poisson's equation on a square, and goes on when ranks fail: those that are left share the
// rows anew, take them from the last checkpoint, and come to the same answer.
//
//	weft run --survive -n 8 ./examples/jacobi
//
// While it runs, kill one of its processes, or several. The pattern is in survive.go; what each rank has, and
// how rows go from one number of ranks to another, is in rows.go; the method, which knows nothing of failures
// but that its calls return an error, in solve.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/weft-mpi/weft/mpi"
)

const maxSide = 1 << 14

// problem has the settings that every rank reads from the command line.
type problem struct {
	side, steps, saveEvery int
	folder                 string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("jacobi: ")
	if err := mpi.Run(context.Background(), jacobi); err != nil {
		log.Fatal(err)
	}
}

func jacobi(_ context.Context, world *mpi.Comm) error {
	var p problem
	flags := flag.NewFlagSet("jacobi", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&p.side, "side", 400, "cells in each row and column of the square")
	flags.IntVar(&p.steps, "steps", 4000, "number of steps")
	flags.IntVar(&p.saveEvery, "save-every", 100, "steps from one checkpoint to the next")
	flags.StringVar(&p.folder, "folder", "jacobi.saved",
		"`folder` for checkpoints, on each host; removed at the end")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		if world.Rank() == 0 {
			fmt.Println("jacobi goes on when ranks fail: weft run --survive -n RANKS ./examples/jacobi " +
				"[flags]")
			flags.SetOutput(os.Stdout)
			flags.PrintDefaults()
		}
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	}
	if err := p.check(world.Size()); err != nil {
		return err
	}
	if err := survive(world, p); err != nil {
		return err
	}
	return os.RemoveAll(p.folder)
}

func (p problem) check(ranks int) error {
	switch {
	case p.side < 1 || p.side > maxSide:
		return fmt.Errorf("-side %d: must be from 1 to %d", p.side, maxSide)
	case ranks > p.side:
		return fmt.Errorf("%d ranks cannot share %d rows: use fewer ranks, or a larger -side", ranks, p.side)
	case p.steps < 0:
		return fmt.Errorf("-steps %d: must be 0 or more", p.steps)
	case p.saveEvery < 1:
		return fmt.Errorf("-save-every %d: must be 1 or more", p.saveEvery)
	case p.folder == "":
		return errors.New("-folder must name a folder")
	}
	return nil
}
