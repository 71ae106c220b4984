package main

import "math"

// temperature returns a cell's initial temperature, from 0 to 1. It is defined for every cell of the plate.
type temperature func(x, y int) float64

// plate is a block of the plate, or all of it, with a margin of one cell on each side. The margin holds the
// neighbors' edges. Beyond the plate it keeps what the plate's own edge had at the start: there the plate
// touches something of that temperature.
type plate struct {
	area
	stride    int
	now, next []float64 // row by row, margin included
}

func newPlate(whole problem, a area, start temperature) *plate {
	p := &plate{area: a, stride: a.width + 2}
	p.now = make([]float64, p.stride*(a.height+2))
	for y := -1; y <= a.height; y++ {
		for x := -1; x <= a.width; x++ {
			p.now[p.at(x, y)] = start(min(max(a.x+x, 0), whole.Width-1), min(max(a.y+y, 0), whole.Height-1))
		}
	}
	p.next = append([]float64(nil), p.now...)
	return p
}

// at is the place of a cell, counted from the block's first; -1 is in the margin.
func (p *plate) at(x, y int) int { return (y+1)*p.stride + x + 1 }

// row is the cells of a row without the margin.
func (p *plate) row(y int) []float64 { return p.now[p.at(0, y):][:p.width] }

// sweep computes the next step of the cells from x0, y0 to before x1, y1.
func (p *plate) sweep(x0, y0, x1, y1 int, diffusivity float64) {
	n := x1 - x0
	for y := y0; y < y1 && n > 0; y++ {
		above := p.now[p.at(x0, y-1):][:n]
		here := p.now[p.at(x0-1, y):][:n+2]
		below := p.now[p.at(x0, y+1):][:n]
		next := p.next[p.at(x0, y):][:n]
		for i := range next {
			t := here[i+1]
			next[i] = t + diffusivity*(above[i]+below[i]+here[i]+here[i+2]-4*t)
		}
	}
}

// sweepInside computes the cells that do not touch the margin.
func (p *plate) sweepInside(diffusivity float64) {
	p.sweep(1, 1, p.width-1, p.height-1, diffusivity)
}

// sweepEdges computes those that do. In a block one cell wide two edges are the same, and computed twice.
func (p *plate) sweepEdges(diffusivity float64) {
	p.sweep(0, 0, p.width, 1, diffusivity)
	p.sweep(0, p.height-1, p.width, p.height, diffusivity)
	p.sweep(0, 0, 1, p.height, diffusivity)
	p.sweep(p.width-1, 0, p.width, p.height, diffusivity)
}

// turn makes the next step the current one. The previous step stays in next, for change, until it is
// overwritten.
func (p *plate) turn() { p.now, p.next = p.next, p.now }

// change is the largest change of a cell in the step before the turn.
func (p *plate) change() float64 {
	largest := 0.0
	for y := range p.height {
		before := p.next[p.at(0, y):][:p.width]
		for x, t := range p.row(y) {
			largest = max(largest, math.Abs(t-before[x]))
		}
	}
	return largest
}

// values are the cells row by row, without the margin.
func (p *plate) values() []float64 {
	v := make([]float64, 0, p.width*p.height)
	for y := range p.height {
		v = append(v, p.row(y)...)
	}
	return v
}
