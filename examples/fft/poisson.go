package main

import "math"

// function is a function on the square from 0 to 2π each way.
type function func(x, y float64) float64

// wave is one part of the solution that the program knows beforehand.
type wave struct{ kx, ky, phase, height float64 }

var waves = []wave{{1, 0, 0.3, 0.4}, {2, 3, 1, 0.3}, {-5, 1, 2, 0.2}, {0, 7, 0.1, 0.1}}

// solution is u, whose mean is 0: the equation says nothing about the mean.
func solution(x, y float64) float64 {
	u := 0.0
	for _, w := range waves {
		u += w.height * math.Cos(w.kx*x+w.ky*y+w.phase)
	}
	return u
}

// source is f = Δu.
func source(x, y float64) float64 {
	f := 0.0
	for _, w := range waves {
		f -= (w.kx*w.kx + w.ky*w.ky) * w.height * math.Cos(w.kx*x+w.ky*y+w.phase)
	}
	return f
}

// point is the place of a row or a column.
func (g *grid) point(i int) float64 { return 2 * math.Pi * float64(i) / float64(g.size) }

// fill sets this rank's rows to a function's values.
func (g *grid) fill(f function) {
	for y := range g.rows {
		row := g.row(y)
		for x := range row {
			row[x] = complex(f(g.point(x), g.point(g.first+y)), 0)
		}
	}
}

// difference is the largest one of this rank's rows from a function's values.
func (g *grid) difference(f function) float64 {
	largest := 0.0
	for y := range g.rows {
		for x, value := range g.row(y) {
			d := math.Hypot(real(value)-f(g.point(x), g.point(g.first+y)), imag(value))
			largest = max(largest, d)
		}
	}
	return largest
}

// forward transforms the grid, which is transposed afterwards.
func (g *grid) forward() error {
	for y := range g.rows {
		g.transformer.forward(g.row(y))
	}
	if err := g.transpose(); err != nil {
		return err
	}
	for y := range g.rows {
		g.transformer.forward(g.row(y))
	}
	return nil
}

// backward is the opposite of forward.
func (g *grid) backward() error {
	for y := range g.rows {
		g.transformer.backward(g.row(y))
	}
	if err := g.transpose(); err != nil {
		return err
	}
	for y := range g.rows {
		g.transformer.backward(g.row(y))
	}
	return nil
}

// frequency returns the frequency of an index of the transform: the upper half is negative.
func (g *grid) frequency(i int) float64 {
	if i > g.size/2 {
		i -= g.size
	}
	return float64(i)
}

// solve replaces f by the u of mean 0 with Δu = f.
func (g *grid) solve() error {
	if err := g.forward(); err != nil {
		return err
	}
	for y := range g.rows {
		ky := g.frequency(g.first + y) // or kx: which of the two it is does not matter here
		row := g.row(y)
		for x := range row {
			kx := g.frequency(x)
			if laplacian := -(kx*kx + ky*ky); laplacian != 0 {
				row[x] /= complex(laplacian, 0)
			} else {
				row[x] = 0
			}
		}
	}
	return g.backward()
}
