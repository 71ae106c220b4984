// Sort sorts the lines of a file by a sample sort, and writes them to another file. Without a file it sorts
// numbers that it makes.
//
//	weft run -n 4 ./examples/sort
//	seq 1000000 | shuf > numbers.txt
//	weft run -n 4 ./examples/sort -output sorted.txt numbers.txt
//
// Lines are compared byte by byte, as LC_ALL=C sort compares them. All ranks read and write the files
// themselves, so on several hosts the files must be on a file system that the hosts share.
//
// It shows how ranks redistribute data of which none knows beforehand how much goes where:
//
//   - all ranks open the file together, and each reads its part and sorts it (part.go);
//   - AllgatherValues gives all ranks a few lines of every part, which are Go strings, and so every rank
//     finds the same splitters: lines that cut the result into parts of almost equal size (split.go);
//   - Alltoall tells the ranks how many bytes they will get from each other, and Alltoallv moves the bytes
//     (exchange.go);
//   - file.WriteOrdered writes the parts one behind the other (output.go);
//   - at the end the ranks verify the result together: the order within each part and from one part to the
//     next, and with Allreduce that no line was lost, added or changed (verify.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("sort: ")
	if err := mpi.Run(context.Background(), run); err != nil {
		log.Fatal(err)
	}
}

// options are the settings that every rank needs. BcastValue sends them, so the fields are exported.
type options struct {
	Help          bool   // rank 0 was asked for help, and there is nothing else to do
	Input, Output string // without an Input the ranks make lines; without an Output they write none
}

// made is the number of lines without an input.
const made = 1_000_000

func run(_ context.Context, world *mpi.Comm) error {
	// Rank 0 alone reads the flags, so a wrong one is reported once. The error that it returns ends the whole
	// job.
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
	begin := mpi.Wtime()
	var before part
	if o.Input == "" {
		before = makePart(world.Rank(), world.Size(), made)
	} else if before, err = readPart(world, o.Input); err != nil {
		return err
	}
	after, err := sortLines(world, before)
	if err != nil {
		return err
	}
	if err := verify(world, before, after); err != nil {
		return err
	}
	if o.Output != "" {
		if err := writePart(world, o.Output, after); err != nil {
			return err
		}
	}
	return report(world, o, after, mpi.Wtime()-begin)
}

// sortLines sorts the lines of all ranks: the result of rank 0 comes first, then that of rank 1, and so on.
func sortLines(world *mpi.Comm, text part) (part, error) {
	mine := text.sorted()
	cuts, err := split(world, mine)
	if err != nil {
		return part{}, err
	}
	return exchange(world, mine, cuts)
}

func report(world *mpi.Comm, o options, mine part, seconds float64) error {
	lines, err := mpi.GatherValues(world, len(mine.lines), 0)
	if err != nil || world.Rank() != 0 {
		return err
	}
	sum, largest := 0, 0
	for _, n := range lines {
		sum, largest = sum+n, max(largest, n)
	}
	took := time.Duration(seconds * float64(time.Second))
	from, to := "", ""
	if o.Input != "" {
		from = " of " + o.Input
	}
	if o.Output != "" {
		to = " into " + o.Output
	}
	fmt.Printf("%d lines%s sorted%s by %d ranks in %v, and verified; at most %d lines a rank\n",
		sum, from, to, world.Size(), took.Round(time.Millisecond), largest)
	return nil
}

// parse reads the arguments. When help is asked for it prints it.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("sort", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.StringVar(&o.Output, "output", "", "`file` for the sorted lines; it may be the input")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("sort sorts the lines of a file: weft run -n RANKS ./examples/sort [-output SORTED FILE]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return options{Help: true}, nil
	case err != nil:
		return options{}, err
	case flags.NArg() == 0:
		return o, nil
	case flags.NArg() > 1 || flags.Arg(0) == "":
		return options{}, fmt.Errorf("%d input files: name one, after the flags; -h tells more", flags.NArg())
	case o.Output == "":
		return options{}, errors.New("no output: name a file with -output")
	}
	o.Input = flags.Arg(0)
	info, err := os.Stat(o.Input)
	if err != nil {
		return options{}, err
	}
	if !info.Mode().IsRegular() {
		return options{}, fmt.Errorf("%s: not a regular file; ranks read parts of it at the same time",
			o.Input)
	}
	return o, nil
}
