package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/checkpoint"
)

// The tags of rows: the way that they travel.
const (
	up = iota
	down
)

// solve goes on from the last checkpoint, on the ranks that there are now, to the end of the problem. The
// first of the ranks reports the answer.
func solve(comm *mpi.Comm, p problem) (err error) {
	store, err := checkpoint.Open(comm, p.folder, fmt.Sprintf("jacobi: side %d", p.side))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			store.Revoke() // others may wait for this rank there
		}
		err = errors.Join(err, store.Close())
	}()
	b := newBlock(p, comm.Rank(), comm.Size())
	step, state, err := store.Load(p.reshape())
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		step = 0
	case err != nil:
		return err
	case step > p.steps:
		return fmt.Errorf("%d steps were saved in %s, and -steps is %d", step, p.folder, p.steps)
	default:
		if err := b.restore(state); err != nil {
			return err
		}
	}
	for step < p.steps {
		if err := b.exchange(comm); err != nil {
			return err
		}
		b.sweep()
		if step++; step%p.saveEvery != 0 {
			continue
		}
		if state, err = b.state(); err != nil {
			return err
		}
		if err := store.Save(step, state); err != nil {
			return err
		}
	}
	return report(comm, p, b)
}

// exchange gives the neighbors the block's edges, and gets theirs. Beyond the square all is 0, and stays so.
func (b *block) exchange(comm *mpi.Comm) error {
	above, below := comm.Rank()-1, comm.Rank()+1
	if above < 0 {
		above = mpi.ProcNull
	}
	if below == comm.Size() {
		below = mpi.ProcNull
	}
	if _, err := mpi.Sendrecv(comm, b.row(0), above, up, b.row(b.rows), below, up); err != nil {
		return err
	}
	_, err := mpi.Sendrecv(comm, b.row(b.rows-1), below, down, b.row(-1), above, down)
	return err
}

// sweep computes the next values. Each is computed in the same way on any number of ranks.
func (b *block) sweep() {
	for y := range b.rows {
		above, here, below := b.row(y-1), b.row(y), b.row(y+1)
		next := b.next[(y+1)*b.side:][:b.side]
		for x := range next {
			left, right := 0.0, 0.0
			if x > 0 {
				left = here[x-1]
			}
			if x+1 < b.side {
				right = here[x+1]
			}
			next[x] = (above[x] + below[x] + left + right + source(x, b.first+y, b.side)) / 4
		}
	}
	b.now, b.next = b.next, b.now
}

// source is the right side of the equation, times the area of a cell.
func source(x, y, side int) float64 {
	h := 1 / float64(side+1)
	return h * h * math.Sin(math.Pi*float64(x+1)*h) * math.Sin(2*math.Pi*float64(y+1)*h)
}

// report gathers the answer and compares it with that of a rank alone, which has to be the same to the bit.
// All ranks learn the outcome. The answer may come twice: where a rank fails meanwhile, those that are left
// cannot know whether it was read.
func report(comm *mpi.Comm, p problem, b *block) error {
	blocks, err := mpi.GatherValues(comm, b.own(), 0)
	if err != nil {
		return err
	}
	wrong := ""
	if comm.Rank() == 0 {
		alone := newBlock(p, 0, 1)
		for range p.steps {
			alone.sweep()
		}
		at, sum := 0, 0.0
		for _, rows := range blocks {
			for _, v := range rows {
				if want := alone.own()[at]; math.Float64bits(v) != math.Float64bits(want) && wrong == "" {
					wrong = fmt.Sprintf("cell %d, %d is %v, and %v on one rank alone", at%p.side, at/p.side,
						v, want)
				}
				sum += v * v
				at++
			}
		}
		if wrong == "" {
			fmt.Printf("square      %d × %d cells, %d steps\n", p.side, p.side, p.steps)
			fmt.Printf("ranks       %d at the end\n", comm.Size())
			fmt.Printf("norm        %.12g\n", math.Sqrt(sum))
			fmt.Println("comparison  bit for bit what one rank computes alone")
		}
	}
	if wrong, err = mpi.BcastValue(comm, wrong, 0); err == nil && wrong != "" {
		err = fmt.Errorf("the ranks' answer is wrong: %s", wrong)
	}
	return err
}
