package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const (
	maxCells     = 1 << 28 // of a plate: 2 GiB for each copy of the plate
	checkedCells = 1 << 20 // the largest plate that is computed twice without being asked to
)

// problem has the settings that every rank needs. A Bcast sends it, so it has a fixed size and no pointers.
type problem struct {
	Width, Height               int // of the plate, in cells; 0 if there is nothing to compute
	Steps                       int
	Diffusivity, Tolerance      float64
	Columns, Rows               int // of the grid of ranks
	PictureWidth, PictureHeight int // of the picture to start from; 0 if there is none
	SaveEvery                   int // steps
}

// options are needed only by rank 0.
type options struct {
	input, output string
	checkpoint    string   // folder to save in; empty for none
	field, from   string   // .npy files to write the plate to, and to start from; empty for none
	brightness    []uint16 // of the picture's pixels, row by row
	check         bool
	unchecked     string // why there is no check
}

// prepare reads the flags and the picture they name, and refuses what cannot be computed before anything is.
func prepare(args []string, ranks int) (o options, p problem, err error) {
	flags := flag.NewFlagSet("heat", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&p.Width, "width", 768, "columns of cells (with -input: those of the picture)")
	flags.IntVar(&p.Height, "height", 512, "rows of cells (with -input: those of the picture)")
	flags.IntVar(&p.Steps, "steps", 3000, "number of steps at most")
	flags.Float64Var(&p.Tolerance, "tolerance", 0,
		"stop when no cell changes more than this in a step; looked at every "+
			fmt.Sprint(residualEvery)+" steps")
	flags.Float64Var(&p.Diffusivity, "diffusivity", 0.2,
		"part of the difference to each neighbor that flows in a step, at most 0.25")
	flags.StringVar(&o.input, "input", "", "a PNG `file` whose brightness is the temperature at the start")
	flags.StringVar(&o.output, "output", "heat.png", "`file` for the picture; none if empty")
	flags.StringVar(&o.checkpoint, "checkpoint", "",
		"`folder` to save the plate in, on each host, and to go on from what is saved there")
	flags.StringVar(&o.field, "field", "", "`file` for the temperatures at the end, for numpy.load and -from")
	flags.StringVar(&o.from, "from", "",
		"a `file` of -field to go on from; the edge of the plate is as it was at the start")
	flags.IntVar(&p.SaveEvery, "checkpoint-every", 500, "steps from one checkpoint to the next")
	flags.BoolVar(&o.check, "check", false, "compare with the plate computed by one rank alone\n"+
		fmt.Sprintf("(default: up to %d cells)", checkedCells))
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("heat computes how heat spreads in a plate: weft run -n RANKS ./examples/heat [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return options{}, problem{}, nil
	case err != nil:
		return o, p, err
	case flags.NArg() > 0:
		return o, p, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })

	if o.input != "" {
		if p.PictureWidth, p.PictureHeight, o.brightness, err = load(o.input); err != nil {
			return o, p, fmt.Errorf("-input: %w", err)
		}
		if !given["width"] {
			p.Width = p.PictureWidth
		}
		if !given["height"] {
			p.Height = p.PictureHeight
		}
	}
	if err := p.validate(); err != nil {
		return o, p, err
	}
	if p.Columns, p.Rows, err = split(ranks, p.Width, p.Height); err != nil {
		return o, p, err
	}
	if !given["check"] && p.Width*p.Height <= checkedCells {
		o.check = true
	}
	if o.from != "" {
		o.check = false // one rank alone starts at the beginning
	}
	o.unchecked = fmt.Sprintf("the plate has more than %d cells; -check asks for it", checkedCells)
	if given["check"] {
		o.unchecked = "-check=false"
	}
	if o.from != "" {
		o.unchecked = "-from"
	}
	return o, p, writable(o.output)
}

// validate refuses what cannot be computed.
func (p problem) validate() error {
	switch {
	case p.Width < 1 || p.Height < 1:
		return fmt.Errorf("-width %d -height %d: a plate has one cell or more each way", p.Width,
			p.Height)
	case p.Width > maxCells/p.Height:
		return fmt.Errorf("-width %d -height %d: more than %d cells", p.Width, p.Height, maxCells)
	case p.SaveEvery < 1:
		return fmt.Errorf("-checkpoint-every %d: must be 1 or more", p.SaveEvery)
	case p.Steps < 0:
		return fmt.Errorf("-steps %d: must be 0 or more", p.Steps)
	case !(p.Tolerance >= 0): // not a number, too
		return fmt.Errorf("-tolerance %v: must be 0 or more", p.Tolerance)
	case !(p.Diffusivity > 0 && p.Diffusivity <= 0.25):
		return fmt.Errorf("-diffusivity %v: must be above 0, and at most 0.25 lest the "+
			"temperatures oscillate", p.Diffusivity)
	}
	return nil
}

// origin describes where the temperatures at the start come from.
func (o options) origin() string {
	if o.input != "" {
		return "as bright as " + o.input + " at the start"
	}
	return "with hot and cold spots at the start"
}

// writable finds out whether the picture can be written, before anything is computed.
func writable(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	return f.Close()
}
