// Pagerank ranks the pages of a web by the links between them: a page is important if important pages link to
// it. Without a file it ranks a web that it makes.
//
//	weft run -n 4 ./examples/pagerank
//	weft run -n 4 ./examples/pagerank examples/pagerank/testdata/links.txt
//
// A line of the file is a link: the numbers of two pages, of which the first links to the second. Lines that
// begin with # are comments. On several hosts the file must be on a file system that the hosts share.
//
// It shows how ranks send to each other when none knows who will send to it:
//
//   - with package file all ranks read the file at once, each its part (links.go);
//   - Exchange brings each link to the rank that has its first page, and tells each rank which of its pages
//     the others' pages link to (web.go);
//   - in each round ExchangeFunc routes what the pages give to those that they link to, without allocating
//     memory (rank.go);
//   - Allreduce adds up what belongs to all ranks: the importance of pages without links, and by how much
//     the pages have changed.
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
	log.SetPrefix("pagerank: ")
	if err := mpi.Run(context.Background(), run); err != nil {
		log.Fatal(err)
	}
}

// options are the settings that every rank needs. BcastValue sends them, so the fields are exported.
type options struct {
	Help      bool    // rank 0 was asked for help, and there is nothing else to do
	Input     string  // without one the ranks make links
	Damping   float64 // the share of its importance that a page gives to those that it links to
	Tolerance float64 // the iteration ends when the pages change by less in all
	Top       int     // pages to print
}

func run(_ context.Context, world *mpi.Comm) error {
	var o options
	if world.Rank() == 0 {
		var err error
		if o, err = parse(os.Args[1:]); err != nil {
			return err
		}
	}
	o, err := mpi.BcastValue(world, o, 0)
	if err != nil || o.Help {
		return err
	}
	links := makeLinks(world.Rank(), world.Size())
	if o.Input != "" {
		if links, err = readLinks(world, o.Input); err != nil {
			return err
		}
	}
	w, err := newWeb(world, links)
	if err != nil {
		return err
	}
	rounds, err := w.iterate(o)
	if err != nil {
		return err
	}
	if err := w.verify(); err != nil {
		return err
	}
	return w.report(o, rounds)
}

// parse reads the arguments. When help is asked for it prints it.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("pagerank", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.Float64Var(&o.Damping, "damping", 0.85, "`share` of its importance that a page gives to others")
	flags.Float64Var(&o.Tolerance, "tolerance", 1e-10, "change of all pages together that ends the iteration")
	flags.IntVar(&o.Top, "top", 3, "how many `pages` to print")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("pagerank ranks the pages of a web: weft run -n RANKS ./examples/pagerank [LINKS]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return options{Help: true}, nil
	case err != nil:
		return o, err
	case flags.NArg() > 1:
		return o, fmt.Errorf("%d files: name one, after the flags; -h tells more", flags.NArg())
	case !(o.Damping >= 0 && o.Damping < 1):
		return o, fmt.Errorf("-damping %v: must be from 0 to less than 1", o.Damping)
	case !(o.Tolerance >= 1e-14 && o.Tolerance <= 1) || math.IsInf(o.Tolerance, 0):
		return o, fmt.Errorf("-tolerance %v: must be from 1e-14 to 1", o.Tolerance)
	case o.Top < 0:
		return o, fmt.Errorf("-top %d: must be 0 or more", o.Top)
	}
	o.Input = flags.Arg(0)
	return o, nil
}
