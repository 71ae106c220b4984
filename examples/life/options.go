package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const (
	maxCells     = 1 << 28 // of a board
	maxFilm      = 1 << 28 // cells, and pixels, in all pictures of a film
	maxGIF       = 1 << 16 // the format's largest width or height, plus one
	checkedCells = 1 << 26 // the longest game, in cells times generations, that is played twice unasked
	widestText   = 100     // the widest board that is printed
)

// options are the settings that every rank needs. BcastValue sends them, so the fields are exported.
type options struct {
	Width, Height int // of the board; 0 if there is nothing to do
	Generations   int
	Output, GIF   string
	Every         int // generations from one picture of the GIF to the next
	Check         bool
}

// prepare reads the flags and the pattern that they name. When help is asked for it prints it and returns no
// options.
func prepare(args []string) (options, board, error) {
	var o options
	flags := flag.NewFlagSet("life", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&o.Width, "width", 64, "columns of cells (with -input: those of the pattern)")
	flags.IntVar(&o.Height, "height", 32, "rows of cells (with -input: those of the pattern)")
	flags.IntVar(&o.Generations, "generations", 100, "number of generations")
	input := flags.String("input", "",
		"a `file` with the pattern to start from, in plaintext format (.cells)")
	seed := flags.Uint64("seed", 1, "number that the random board follows from where there is no -input")
	flags.StringVar(&o.Output, "output", "", "`file` for the board at the end, in the same format\n"+
		fmt.Sprintf("(default: printed, up to %d columns)", widestText))
	flags.StringVar(&o.GIF, "gif", "", "`file` for a film of the game")
	flags.IntVar(&o.Every, "every", 1, "generations from one picture of the film to the next")
	flags.BoolVar(&o.Check, "check", false, "compare with the game played by one rank alone\n"+
		"(default: unless it takes long)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("life plays the game of life on a torus: weft run -n RANKS ./examples/life [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return options{}, board{}, nil
	case err != nil:
		return options{}, board{}, err
	case flags.NArg() > 0:
		return options{}, board{}, fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var pattern board
	if *input != "" {
		var err error
		if pattern, err = load(*input); err != nil {
			return options{}, board{}, fmt.Errorf("-input: %w", err)
		}
		if !given["width"] {
			o.Width = pattern.width
		}
		if !given["height"] {
			o.Height = pattern.height
		}
	}
	if err := o.validate(pattern); err != nil {
		return options{}, board{}, err
	}
	if !given["check"] {
		o.Check = o.Generations <= checkedCells/(o.Width*o.Height)
	}
	if *input != "" {
		return o, pattern.on(o.Width, o.Height), nil
	}
	return o, soup(o.Width, o.Height, *seed), nil
}

// validate refuses what cannot be played.
func (o options) validate(pattern board) error {
	switch {
	case o.Width < 1 || o.Height < 1:
		return fmt.Errorf("-width %d -height %d: a board has one cell or more each way", o.Width, o.Height)
	case o.Width > maxCells/o.Height:
		return fmt.Errorf("-width %d -height %d: more than %d cells", o.Width, o.Height, maxCells)
	case o.Width < pattern.width || o.Height < pattern.height:
		return fmt.Errorf("-width %d -height %d: the pattern has %d × %d cells", o.Width, o.Height,
			pattern.width, pattern.height)
	case o.Generations < 0:
		return fmt.Errorf("-generations %d: must be 0 or more", o.Generations)
	case o.Every < 1:
		return fmt.Errorf("-every %d: must be 1 or more", o.Every)
	case o.GIF == "":
		return nil
	case o.Width >= maxGIF || o.Height >= maxGIF:
		return fmt.Errorf("-gif: %d × %d cells; a GIF has less than %d each way", o.Width, o.Height, maxGIF)
	case o.Generations/o.Every >= maxFilm/(o.Width*o.Height):
		return fmt.Errorf("-gif: %d pictures of %d × %d cells are more than %d cells; use a larger -every",
			o.Generations/o.Every+1, o.Width, o.Height, maxFilm)
	}
	return nil
}

// load reads a pattern from a file.
func load(name string) (board, error) {
	f, err := os.Open(name)
	if err != nil {
		return board{}, err
	}
	defer f.Close()
	b, err := parse(f)
	if err != nil {
		return board{}, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
