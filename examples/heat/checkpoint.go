package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/checkpoint"
)

// saved is where the plate is saved, and goes on from; nil without -checkpoint.
type saved struct {
	store *checkpoint.Store
	every int // steps
}

// openSaved opens the folder that rank 0 was given, if it was given one.
func openSaved(world *mpi.Comm, o options, p problem) (*saved, error) {
	folder, err := mpi.BcastValue(world, o.checkpoint, 0)
	if err != nil || folder == "" {
		return nil, err
	}
	what, err := mpi.BcastValue(world, fmt.Sprintf("heat: %d × %d cells, %s, diffusivity %v", p.Width,
		p.Height, o.origin(), p.Diffusivity), 0)
	if err != nil {
		return nil, err
	}
	store, err := checkpoint.Open(world, folder, what)
	if err != nil {
		return nil, fmt.Errorf("-checkpoint: %w", err)
	}
	return &saved{store, p.SaveEvery}, nil
}

// load puts the latest state into the block, and returns its step: 0 where none was saved.
func (s *saved) load(p problem, block *plate) (step int, err error) {
	if s == nil {
		return 0, nil
	}
	step, state, err := s.store.Load(reshape(p))
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, nil
	}
	if err == nil && step > p.Steps {
		err = fmt.Errorf("the plate was saved after %d steps, and -steps is %d", step, p.Steps)
	}
	if err != nil {
		return 0, fmt.Errorf("-checkpoint: %w", err)
	}
	cells := make([]float64, block.width*block.height)
	if _, err := binary.Decode(state, binary.LittleEndian, cells); err != nil {
		return 0, fmt.Errorf("-checkpoint: %w", err)
	}
	for y := range block.height {
		copy(block.row(y), cells[y*block.width:])
	}
	return step, nil
}

// save saves the block when it is time.
func (s *saved) save(step int, block *plate) error {
	if s == nil || step%s.every != 0 {
		return nil
	}
	state, err := binary.Append(nil, binary.LittleEndian, block.values())
	if err == nil {
		err = s.store.Save(step, state)
	}
	if err != nil {
		return fmt.Errorf("-checkpoint: %w", err)
	}
	return nil
}

func (s *saved) close() error {
	if s == nil {
		return nil
	}
	return s.store.Close()
}

const cellBytes = 8

// reshape takes the cells of another grid of ranks. A piece is what a block of the old grid and one of the
// new one have in common, row by row.
func reshape(p problem) *checkpoint.Reshape {
	grid := func(ranks int) (problem, error) {
		var err error
		q := p
		q.Columns, q.Rows, err = split(ranks, p.Width, p.Height)
		return q, err
	}
	return &checkpoint.Reshape{
		Split: func(state []byte, from, old, ranks int) ([][]byte, error) {
			before, err := grid(old)
			if err != nil {
				return nil, err
			}
			a := before.area(from)
			if len(state) != a.width*a.height*cellBytes {
				return nil, fmt.Errorf("%d bytes for %d × %d cells", len(state), a.width, a.height)
			}
			pieces := make([][]byte, ranks)
			for rank := range pieces {
				common := a.intersect(p.area(rank))
				for y := range common.height {
					at := (common.y+y-a.y)*a.width + common.x - a.x
					pieces[rank] = append(pieces[rank], state[at*cellBytes:][:common.width*cellBytes]...)
				}
			}
			return pieces, nil
		},
		Join: func(pieces [][]byte, rank, _ int) ([]byte, error) {
			before, err := grid(len(pieces))
			if err != nil {
				return nil, err
			}
			a := p.area(rank)
			state := make([]byte, a.width*a.height*cellBytes)
			for from, piece := range pieces {
				common := a.intersect(before.area(from))
				if len(piece) != common.width*common.height*cellBytes {
					return nil, fmt.Errorf("%d bytes for %d × %d cells", len(piece), common.width,
						common.height)
				}
				for y := range common.height {
					at := (common.y+y-a.y)*a.width + common.x - a.x
					copy(state[at*cellBytes:], piece[y*common.width*cellBytes:][:common.width*cellBytes])
				}
			}
			return state, nil
		},
	}
}
