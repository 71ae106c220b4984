package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const (
	maxCoordinates = 1 << 30 // of all points together, and of all centers
	maxClusters    = 1 << 16
)

// options are further settings of every rank. BcastValue sends them, so the field is exported.
type options struct{ Output string }

// prepare reads the flags, and reads or makes the points. When help is asked for it prints it and returns no
// problem.
func prepare(args []string) (problem, options, points, error) {
	var p problem
	var o options
	flags := flag.NewFlagSet("kmeans", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&p.K, "k", 4, "number of clusters")
	flags.IntVar(&p.Rounds, "rounds", 100, "number of rounds at most")
	flags.IntVar(&p.Points, "points", 20_000, "number of points to make where there is no -input")
	flags.IntVar(&p.Dimensions, "dimensions", 2, "number of their dimensions")
	seed := flags.Uint64("seed", 1, "number that they follow from")
	input := flags.String("input", "", "a CSV `file` with the points, one a line")
	flags.StringVar(&o.Output, "output", "", "`file` for the number of each point's cluster")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("kmeans groups points into clusters: weft run -n RANKS ./examples/kmeans [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return problem{}, o, points{}, nil
	case err != nil:
		return p, o, points{}, err
	case flags.NArg() > 0:
		return p, o, points{}, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	}
	var all points
	if *input != "" {
		var err error
		if all, err = load(*input); err != nil {
			return p, o, points{}, fmt.Errorf("-input: %w", err)
		}
		p.Points, p.Dimensions = all.count(), all.dimensions
	}
	if err := p.validate(); err != nil {
		return p, o, points{}, err
	}
	if *input == "" {
		all = scattered(p, *seed)
	}
	return p, o, all, nil
}

// validate refuses what cannot be computed.
func (p problem) validate() error {
	switch {
	case p.Points < 1:
		return fmt.Errorf("-points %d: must be 1 or more", p.Points)
	case p.Dimensions < 1:
		return fmt.Errorf("-dimensions %d: must be 1 or more", p.Dimensions)
	case p.Points > maxCoordinates/p.Dimensions:
		return fmt.Errorf("%d points in %d dimensions: more than %d coordinates", p.Points, p.Dimensions,
			maxCoordinates)
	case p.K < 1 || p.K > min(p.Points, maxClusters):
		return fmt.Errorf("-k %d: must be from 1 to %d, and not above the number of points, %d", p.K,
			maxClusters, p.Points)
	case p.Rounds < 1:
		return fmt.Errorf("-rounds %d: must be 1 or more", p.Rounds)
	}
	return nil
}
