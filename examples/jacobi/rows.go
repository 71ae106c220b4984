package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/mpi/checkpoint"
)

// firstRow is the first row of a rank; those of all ranks differ by one in number at most.
func (p problem) firstRow(rank, ranks int) int { return rank * p.side / ranks }

// block is a rank's rows of the square, with a row of a neighbor, or of the border, above and below.
type block struct {
	side, first, rows int
	now, next         []float64
}

func newBlock(p problem, rank, ranks int) *block {
	b := &block{side: p.side, first: p.firstRow(rank, ranks)}
	b.rows = p.firstRow(rank+1, ranks) - b.first
	b.now, b.next = make([]float64, (b.rows+2)*p.side), make([]float64, (b.rows+2)*p.side)
	return b
}

// row returns a row of the current values; -1 and rows are the neighbors' rows.
func (b *block) row(y int) []float64 { return b.now[(y+1)*b.side:][:b.side] }

// own are the present values of the block's own rows.
func (b *block) own() []float64 { return b.now[b.side:][:b.rows*b.side] }

// state is the block as it is saved.
func (b *block) state() ([]byte, error) { return binary.Append(nil, binary.LittleEndian, b.own()) }

func (b *block) restore(state []byte) error {
	if want := binary.Size(b.own()); len(state) != want {
		return fmt.Errorf("%d bytes were saved of a block of %d", len(state), want)
	}
	_, err := binary.Decode(state, binary.LittleEndian, b.own())
	return err
}

// reshape takes the rows of another number of ranks.
func (p problem) reshape() *checkpoint.Reshape {
	bytesOf := func(rows int) int { return rows * p.side * 8 }
	return &checkpoint.Reshape{
		Split: func(state []byte, from, old, ranks int) ([][]byte, error) {
			begin, end := p.firstRow(from, old), p.firstRow(from+1, old)
			if len(state) != bytesOf(end-begin) {
				return nil, fmt.Errorf("%d bytes were saved of %d rows", len(state), end-begin)
			}
			pieces := make([][]byte, ranks)
			for rank := range pieces {
				low, high := max(begin, p.firstRow(rank, ranks)), min(end, p.firstRow(rank+1, ranks))
				if low < high {
					pieces[rank] = state[bytesOf(low-begin):bytesOf(high-begin)]
				}
			}
			return pieces, nil
		},
		Join: func(pieces [][]byte, _, _ int) ([]byte, error) { return bytes.Join(pieces, nil), nil },
	}
}
