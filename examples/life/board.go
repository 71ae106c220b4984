package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// alive is a cell that lives; a dead one is 0. So cells can be added up.
const alive = 1

// board is a torus of cells, row by row. The zero board has none.
type board struct {
	width, height int
	cells         []uint8
}

func newBoard(width, height int) board { return board{width, height, make([]uint8, width*height)} }

// lives is the rule: a cell with three living neighbors lives, and so does a living one with two.
func lives(cell, neighbors uint8) uint8 {
	if neighbors == 3 || neighbors == 2 && cell == alive {
		return alive
	}
	return 0
}

// around has the positions of a cell's neighbors.
var around = [8]struct{ x, y int }{{-1, -1}, {0, -1}, {1, -1}, {-1, 0}, {1, 0}, {-1, 1}, {0, 1}, {1, 1}}

// next returns the next generation, in the simplest way, to compare with the ranks' answer.
func (b board) next() board {
	n := newBoard(b.width, b.height)
	for y := range b.height {
		for x := range b.width {
			sum := uint8(0)
			for _, d := range around {
				sum += b.cells[(y+d.y+b.height)%b.height*b.width+(x+d.x+b.width)%b.width]
			}
			n.cells[y*b.width+x] = lives(b.cells[y*b.width+x], sum)
		}
	}
	return n
}

// String is the board as text, as parse reads it.
func (b board) String() string {
	var s strings.Builder
	for y := range b.height {
		for _, cell := range b.cells[y*b.width:][:b.width] {
			s.WriteByte(".O"[cell])
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// soup is a board of which about a third lives, the same for the same seed.
func soup(width, height int, seed uint64) board {
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBoard(width, height)
	for i := range b.cells {
		if random.IntN(3) == 0 {
			b.cells[i] = alive
		}
	}
	return b
}

// maxLine is the longest line of a pattern.
const maxLine = 1 << 20

// parse reads a pattern in the plaintext format of LifeWiki (.cells): a row a line, "." for dead cells and
// "O" for living ones, which may be left out at the end of a line; lines that begin with "!" are comments.
// The board is as wide as the longest row.
func parse(r io.Reader) (board, error) {
	var rows []string
	width, cells := 0, 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		row := strings.TrimRight(lines.Text(), "\r")
		if strings.HasPrefix(row, "!") {
			continue
		}
		if i := strings.IndexFunc(row, func(c rune) bool { return c != '.' && c != 'O' }); i >= 0 {
			return board{}, fmt.Errorf("line %d, column %d: %q is neither \".\" (dead) nor \"O\" (alive)",
				number, i+1, []rune(row[i:])[0])
		}
		rows = append(rows, row)
		width = max(width, len(row))
		if cells = width * len(rows); cells > maxCells {
			return board{}, fmt.Errorf("line %d: the pattern has more than %d cells", number, maxCells)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return board{}, fmt.Errorf("line %d: longer than %d bytes: no pattern", number+1, maxLine)
	} else if err != nil {
		return board{}, fmt.Errorf("line %d: %w", number+1, err)
	}
	if cells == 0 {
		return board{}, fmt.Errorf("no cells in %d lines; a row is a line of \".\" and \"O\"", number)
	}
	b := newBoard(width, len(rows))
	for y, row := range rows {
		for x := range row {
			if row[x] == 'O' {
				b.cells[y*width+x] = alive
			}
		}
	}
	return b, nil
}

// on puts the board in the middle of a larger one.
func (b board) on(width, height int) board {
	n := newBoard(width, height)
	for y := range b.height {
		copy(n.cells[((height-b.height)/2+y)*width+(width-b.width)/2:], b.cells[y*b.width:][:b.width])
	}
	return n
}
