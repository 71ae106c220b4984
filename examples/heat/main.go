// Heat computes how heat spreads in a plate that is split among the ranks, and draws the plate at the end.
//
//	weft run -n 4 ./examples/heat
//	weft run -n 4 ./examples/heat -input photo.png -steps 500
//	weft run -n 4 --restarts 3 ./examples/heat -checkpoint /tmp/heat
//	weft run -n 4 ./examples/heat -h
//
// It shows what most simulations on many computers are made of:
//
//   - the domain is cut into blocks, one a rank, in a grid of ranks (grid.go);
//   - each step, neighbors exchange the edges of their blocks with Isend and Irecv, and compute what needs
//     no neighbor while the messages travel (halo.go);
//   - every few steps, Allreduce tells all ranks how much the plate still changes, so that they stop together
//     (main.go);
//   - rank 0 alone reads flags and files, and gives the others what they need with Bcast (main.go);
//   - Gather collects the blocks at rank 0 (gather.go), which also computes the plate alone: each cell is
//     computed in the same way on any number of ranks, so the two answers must agree bit for bit;
//   - with -field all ranks write their blocks to one file, which NumPy opens; with -from they read it again,
//     on any number of ranks (field.go);
//   - with -checkpoint the ranks save their blocks every few hundred steps, and a job that starts again goes
//     on from there, also on another number of ranks (checkpoint.go).
//
// It also shows what to do with an error: return it. mpi.Run then ends the whole job, the ranks that wait for
// this one too.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// residualEvery is the number of steps from one look at the residual to the next.
const residualEvery = 20

func main() {
	log.SetFlags(0)
	log.SetPrefix("heat: ")
	if err := mpi.Run(context.Background(), heat); err != nil {
		log.Fatal(err)
	}
}

func heat(_ context.Context, world *mpi.Comm) error {
	var o options
	problems := make([]problem, 1)
	if world.Rank() == 0 {
		var err error
		if o, problems[0], err = prepare(os.Args[1:], world.Size()); err != nil {
			return err
		}
	}
	if err := mpi.Bcast(world, problems, 0); err != nil {
		return err
	}
	p := problems[0]
	if p.Width == 0 {
		return nil // rank 0 was asked for help
	}
	start := spots(p.Width, p.Height)
	if p.PictureWidth > 0 {
		brightness := o.brightness
		if world.Rank() != 0 {
			brightness = make([]uint16, p.PictureWidth*p.PictureHeight)
		}
		if err := mpi.Bcast(world, brightness, 0); err != nil {
			return err
		}
		start = p.sample(brightness)
	}

	block := newPlate(p, p.area(world.Rank()), start)
	paths, err := mpi.BcastValue(world, files{o.from, o.field}, 0)
	if err != nil {
		return err
	}
	if err := paths.read(world, p, block); err != nil {
		return err
	}
	to, err := openSaved(world, o, p)
	if err != nil {
		return err
	}
	done, err := spread(world, p, block, to)
	if err != nil {
		return err
	}
	if err := to.close(); err != nil {
		return err
	}
	if err := paths.write(world, p, block); err != nil {
		return err
	}
	field, err := gather(world, p, block)
	if err != nil || world.Rank() != 0 {
		return err
	}
	return report(o, p, done, field, start)
}

// outcome is the result of spreading the heat.
type outcome struct {
	from     int // the step that was saved, and gone on from
	steps    int
	residual float64 // the largest change of a cell in the last step
	seconds  float64
}

// spread lets the heat spread until the steps are done or the plate hardly changes any more.
func spread(world *mpi.Comm, p problem, block *plate, to *saved) (done outcome, err error) {
	h := newHalo(world, p, block)
	if done.from, err = to.load(p, block); err != nil {
		return done, err
	}
	if err := mpi.Barrier(world); err != nil {
		return done, err
	}
	done.steps = done.from
	begin := mpi.Wtime()
	for done.steps < p.Steps {
		if err := h.begin(); err != nil {
			return done, err
		}
		block.sweepInside(p.Diffusivity)
		if err := h.end(); err != nil {
			return done, err
		}
		block.sweepEdges(p.Diffusivity)
		block.turn()
		done.steps++
		if done.steps%residualEvery == 0 || done.steps == p.Steps {
			change := []float64{block.change()}
			if err := mpi.Allreduce(world, mpi.InPlace[float64](), change, mpi.Max[float64]()); err != nil {
				return done, err
			}
			if done.residual = change[0]; done.residual <= p.Tolerance {
				break
			}
		}
		if err := to.save(done.steps, block); err != nil {
			return done, err
		}
	}
	done.seconds = mpi.Wtime() - begin
	return done, nil
}

// report prints the result, compares it with the plate computed by one rank, and draws it.
func report(o options, p problem, done outcome, field []float64, start temperature) error {
	fmt.Printf("plate       %d × %d cells, %s\n", p.Width, p.Height, o.origin())
	fmt.Printf("ranks       %d, in a grid of %d × %d\n", p.Columns*p.Rows, p.Columns, p.Rows)
	fmt.Printf("steps       %d, the last of which changed no cell by more than %.3g\n", done.steps,
		done.residual)
	took := time.Duration(done.seconds * float64(time.Second))
	fmt.Printf("time        %v", took.Round(100*time.Microsecond))
	if steps := done.steps - done.from; steps > 0 {
		fmt.Printf(", %.0f million updates/s", float64(p.Width*p.Height)*float64(steps)/done.seconds/1e6)
	}
	fmt.Println()
	if done.from > 0 {
		fmt.Printf("checkpoint  the %d steps up to it were not computed again\n", done.from)
	}
	if o.check {
		alone := compute(p, start, done.steps)
		for i, t := range field {
			if math.Float64bits(t) != math.Float64bits(alone[i]) {
				return fmt.Errorf("the ranks' answer is wrong: cell %d, %d is %v, and %v on one rank alone",
					i%p.Width, i/p.Width, t, alone[i])
			}
		}
		fmt.Println("comparison  bit for bit what one rank computes alone")
	} else {
		fmt.Printf("comparison  left out: %s\n", o.unchecked)
	}
	if o.output == "" {
		return nil
	}
	picture, err := draw(p, field)
	if err == nil {
		err = os.WriteFile(o.output, picture, 0o666)
	}
	if err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	fmt.Printf("picture     %s\n", o.output)
	return nil
}

// compute is the whole plate after the given number of steps, computed without any message.
func compute(p problem, start temperature, steps int) []float64 {
	whole := newPlate(p, area{width: p.Width, height: p.Height}, start)
	for range steps {
		whole.sweep(0, 0, p.Width, p.Height, p.Diffusivity)
		whole.turn()
	}
	return whole.values()
}
