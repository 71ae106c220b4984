package main

// block is the rank's part of the torus, with a margin of one cell on each side, which holds copies of what
// is around it.
type block struct {
	width, height int // without the margin
	now, then     []uint8
}

func newBlock(width, height int) *block {
	cells := (width + 2) * (height + 2)
	return &block{width, height, make([]uint8, cells), make([]uint8, cells)}
}

// row is a row with its margin: 0 is the first of the block, -1 is in the margin.
func row(cells []uint8, b *block, y int) []uint8 {
	stride := b.width + 2
	return cells[(y+1)*stride:][:stride]
}

// step makes the next generation. The margin must be that of the present one.
func (b *block) step() {
	for y := range b.height {
		above, here, below := row(b.now, b, y-1), row(b.now, b, y), row(b.now, b, y+1)
		next := row(b.then, b, y)
		for x := 1; x <= b.width; x++ {
			neighbors := above[x-1] + above[x] + above[x+1] + here[x-1] + here[x+1] + below[x-1] + below[x] +
				below[x+1]
			next[x] = lives(here[x], neighbors)
		}
	}
	b.now, b.then = b.then, b.now
}

// cells are the cells row by row, without the margin.
func (b *block) cells() []uint8 {
	cells := make([]uint8, 0, b.width*b.height)
	for y := range b.height {
		cells = append(cells, row(b.now, b, y)[1:b.width+1]...)
	}
	return cells
}

// fill sets the cells, which come row by row without the margin.
func (b *block) fill(cells []uint8) {
	for y := range b.height {
		copy(row(b.now, b, y)[1:], cells[y*b.width:][:b.width])
	}
}
