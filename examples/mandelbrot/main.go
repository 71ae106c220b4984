// Mandelbrot draws the Mandelbrot set: a pool of ranks computes the picture in tiles, of which some take a
// thousand times as long as others.
//
//	weft run -n 4 ./examples/mandelbrot -output mandelbrot.png
//	weft run -n 4 --survive ./examples/mandelbrot
//
// It shows how ranks share work of which nobody knows beforehand how long it takes:
//
//   - all ranks call pool.Map and range over its results: rank 0 gets them, and the others compute;
//   - a task is a rectangle, a struct of numbers, and a result is its pixels; the tiles come as they are
//     ready;
//   - a worker gets the next tile when it has time, so none waits for another;
//   - with --survive, the tiles of a rank that is lost are computed by others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"log"
	"math/cmplx"
	"os"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/pool"
)

// options are the settings that every rank needs.
type options struct {
	Width, Height, Tile, Limit int
	Progress                   bool
}

// A tile is a rectangle of the picture.
type tile struct{ X, Y, Width, Height int }

// pixels are the pixels of a tile, row by row: how many steps each took to leave, or the limit.
type pixels struct {
	Tile  tile
	Steps []uint16
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mandelbrot: ")
	if err := mpi.Run(context.Background(), run); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, world *mpi.Comm) error {
	var o options
	output := ""
	if world.Rank() == 0 {
		var err error
		if o, output, err = parse(os.Args[1:]); err != nil {
			return err
		}
	}
	o, err := mpi.BcastValue(world, o, 0)
	if err != nil || o.Width == 0 {
		return err // without a size rank 0 was asked for help
	}
	how := []pool.Option{pool.Unordered()}
	if o.Progress {
		how = append(how, pool.Progress(os.Stderr, o.tiles()))
	}
	picture := image.NewGray(image.Rect(0, 0, o.Width, o.Height))
	inside := 0
	for p, err := range pool.Map(ctx, world, o.cut, o.compute, how...) {
		if err != nil {
			return err
		}
		for i, steps := range p.Steps {
			if int(steps) == o.Limit {
				inside++
				continue // black
			}
			x, y := p.Tile.X+i%p.Tile.Width, p.Tile.Y+i/p.Tile.Width
			picture.SetGray(x, y, color.Gray{uint8(255 - steps%200)})
		}
	}
	if world.Rank() != 0 {
		return nil
	}
	fmt.Printf("%d × %d pixels in %d tiles, %d inside\n", o.Width, o.Height, o.tiles(), inside)
	if output == "" {
		return nil
	}
	return write(output, picture)
}

// cut yields the tiles of the picture.
func (o options) cut(yield func(tile) bool) {
	for y := 0; y < o.Height; y += o.Tile {
		for x := 0; x < o.Width; x += o.Tile {
			if !yield(tile{x, y, min(o.Tile, o.Width-x), min(o.Tile, o.Height-y)}) {
				return
			}
		}
	}
}

func (o options) tiles() int {
	return (o.Width + o.Tile - 1) / o.Tile * ((o.Height + o.Tile - 1) / o.Tile)
}

// compute computes a tile.
func (o options) compute(ctx context.Context, t tile) (pixels, error) {
	p := pixels{Tile: t}
	scale := 3 / float64(o.Width)
	for y := t.Y; y < t.Y+t.Height; y++ {
		if err := ctx.Err(); err != nil {
			return pixels{}, err // nobody wants the tile any more
		}
		for x := t.X; x < t.X+t.Width; x++ {
			c := complex(float64(x)*scale-2.1, (float64(y)-float64(o.Height)/2)*scale)
			p.Steps = append(p.Steps, uint16(o.steps(c)))
		}
	}
	return p, nil
}

// steps returns how many steps a point takes to leave, at most the limit.
func (o options) steps(c complex128) int {
	z := c
	for n := range o.Limit {
		if cmplx.Abs(z) > 2 {
			return n
		}
		z = z*z + c
	}
	return o.Limit
}

func write(name string, picture image.Image) error {
	f, err := os.Create(name)
	if err == nil {
		err = errors.Join(png.Encode(f, picture), f.Close())
	}
	if err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	return nil
}

// parse reads the arguments. When help is asked for it prints it and returns no size.
func parse(args []string) (o options, output string, err error) {
	flags := flag.NewFlagSet("mandelbrot", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.IntVar(&o.Width, "width", 900, "`pixels` of a row")
	flags.IntVar(&o.Height, "height", 600, "`rows` of pixels")
	flags.IntVar(&o.Tile, "tile", 32, "`pixels` of a tile each way")
	flags.IntVar(&o.Limit, "limit", 1000, "`steps` after which a point counts as inside")
	flags.BoolVar(&o.Progress, "progress", false, "report on standard error how many tiles are done")
	flags.StringVar(&output, "output", "", "PNG `file` for the picture; none if empty")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("mandelbrot draws the Mandelbrot set: weft run -n RANKS ./examples/mandelbrot [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return options{}, "", nil
	case err != nil:
		return o, "", err
	case flags.NArg() > 0:
		return o, "", fmt.Errorf("%q is not a flag; -h lists them", flags.Arg(0))
	case o.Width < 1 || o.Height < 1 || o.Width > 1<<15 || o.Height > 1<<15:
		return o, "", fmt.Errorf("-width %d -height %d: must be from 1 to %d", o.Width, o.Height, 1<<15)
	case o.Tile < 1 || o.Tile > 1024:
		return o, "", fmt.Errorf("-tile %d: must be from 1 to 1024", o.Tile)
	case o.Limit < 1 || o.Limit > 65535:
		return o, "", fmt.Errorf("-limit %d: must be from 1 to 65535", o.Limit)
	}
	return o, output, writable(output)
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
