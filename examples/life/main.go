// Life plays Conway's game of life on a torus that is split among the ranks.
//
//	weft run -n 4 ./examples/life
//	weft run -n 4 ./examples/life -width 300 -height 200 -generations 400 -gif life.gif
//	weft run -n 4 ./examples/life -input examples/life/testdata/gun.cells -width 80 -height 40
//
// It shows a grid of ranks:
//
//   - DimsCreate and Cart arrange the ranks in a grid that is periodic both ways, and Cart.Sub makes the rows
//     and the columns of that grid, which are communicators of their own (torus.go);
//   - each generation, NeighborAlltoall exchanges the edges of the ranks' blocks along the rows, and then
//     along the columns. The second exchange takes along what the first one brought, and so cells in corners
//     reach the ranks diagonally across (halo.go);
//   - Scatterv and Gatherv give the ranks blocks of different sizes, and collect them (torus.go).
//
// Rank 0 also plays the game alone, unless it is very long, and the two boards must be equal.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("life: ")
	if err := mpi.Run(context.Background(), life); err != nil {
		log.Fatal(err)
	}
}

func life(_ context.Context, world *mpi.Comm) error {
	var o options
	var start board // at rank 0 alone
	if world.Rank() == 0 {
		var err error
		if o, start, err = prepare(os.Args[1:]); err != nil {
			return err
		}
	}
	o, err := mpi.BcastValue(world, o, 0)
	if err != nil || o.Width == 0 {
		return err // without a width rank 0 was asked for help
	}
	t, err := newTorus(world, o.Width, o.Height)
	if err != nil {
		return err
	}
	mine, err := t.scatter(start)
	if err != nil {
		return err
	}
	begin := mpi.Wtime()
	end, film, err := play(t, o, mine)
	if err != nil || world.Rank() != 0 {
		return err
	}
	return report(o, t, start, end, film, mpi.Wtime()-begin)
}

// play plays all generations. It returns the board at the end and the film, both at rank 0 alone.
func play(t *torus, o options, mine *block) (board, *film, error) {
	h := newHalo(t, mine)
	f := newFilm(o.Width, o.Height, o.Generations/o.Every+1)
	for generation := range o.Generations {
		if o.GIF != "" && generation%o.Every == 0 {
			if err := f.shoot(t, mine); err != nil {
				return board{}, nil, err
			}
		}
		if err := h.exchange(); err != nil {
			return board{}, nil, err
		}
		mine.step()
	}
	end, err := t.gather(mine)
	if err == nil && o.GIF != "" && t.rank() == 0 {
		f.add(end)
	}
	return end, f, err
}

func report(o options, t *torus, start, end board, f *film, seconds float64) error {
	if o.Check {
		alone := start
		for range o.Generations {
			alone = alone.next()
		}
		for i, cell := range end.cells {
			if cell != alone.cells[i] {
				return fmt.Errorf("the ranks' answer is wrong: cell %d, %d is %d, and %d on one rank alone",
					i%end.width, i/end.width, cell, alone.cells[i])
			}
		}
	}
	if o.GIF != "" {
		if err := f.write(o.GIF); err != nil {
			return fmt.Errorf("-gif: %w", err)
		}
	}
	if o.Output != "" {
		if err := os.WriteFile(o.Output, []byte(end.String()), 0o666); err != nil {
			return fmt.Errorf("-output: %w", err)
		}
	} else if end.width <= widestText {
		fmt.Print(end)
	}
	took := time.Duration(seconds * float64(time.Second))
	dims := t.grid.Dims()
	fmt.Printf("%d generations on %d × %d cells by %d × %d ranks in %v: %d cells live", o.Generations,
		o.Width, o.Height, dims[1], dims[0], took.Round(time.Millisecond), end.living())
	if o.Check {
		fmt.Print("; checked")
	}
	fmt.Println()
	return nil
}

// living is the number of cells that live.
func (b board) living() int {
	n := 0
	for _, cell := range b.cells {
		n += int(cell)
	}
	return n
}
