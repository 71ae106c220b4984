package tracereport

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Limits of the matrix of bytes: of more than maxCells ranks, neighbors share a row and a column; up to
// maxFigures rows, each cell has its figure.
const (
	maxCells   = 128
	maxFigures = 12
)

// matrix returns a plot of the bytes from each rank to each rank. Rank 0 is at the top left.
func (j *Job) matrix() *plot.Plot {
	m := j.cells()
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Bytes between ranks: few are light, many dark, at most %s", size(m.most))
	p.X.Label.Text, p.Y.Label.Text = "To rank", "From rank"
	p.Add(m)
	n := float64(len(m.first))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, n-0.5, -0.5, n-0.5
	var columns, rows []plot.Tick
	for i, number := range m.first {
		if i%(1+(len(m.first)-1)/16) == 0 {
			columns = append(columns, plot.Tick{Value: float64(i), Label: fmt.Sprint(number)})
			rows = append(rows, plot.Tick{Value: m.height(i), Label: fmt.Sprint(number)})
		}
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(columns), plot.ConstantTicks(rows)
	return p
}

// cells is the matrix of bytes, as it is drawn.
type cells struct {
	first []int            // of each row and column: the first rank's number
	bytes map[[2]int]int64 // above zero, by row and column
	most  int64
}

// cells returns the matrix with a row for each rank that the trace names, including ranks without events, as
// killed ranks leave none.
func (j *Job) cells() *cells {
	named := map[int]bool{}
	for _, r := range j.Ranks {
		named[r.Number] = true
	}
	for pair := range j.Bytes {
		named[pair[0]], named[pair[1]] = true, true
	}
	numbers := slices.Sorted(maps.Keys(named))
	share := 1 + (len(numbers)-1)/maxCells
	m := &cells{bytes: map[[2]int]int64{}}
	rowOf := map[int]int{}
	for i, number := range numbers {
		rowOf[number] = i / share
		if i%share == 0 {
			m.first = append(m.first, number)
		}
	}
	for pair, n := range j.Bytes {
		if n > 0 {
			at := [2]int{rowOf[pair[0]], rowOf[pair[1]]}
			m.bytes[at] = plus(m.bytes[at], n)
			m.most = max(m.most, m.bytes[at])
		}
	}
	return m
}

// height returns the position of a row on the vertical axis, which grows upwards.
func (m *cells) height(row int) float64 { return float64(len(m.first) - 1 - row) }

// shade returns the darkness of a cell, from 0 to 1, on a logarithmic scale.
func (m *cells) shade(bytes int64) float64 {
	if m.most < 2 {
		return 1
	}
	return math.Log(float64(bytes)) / math.Log(float64(m.most))
}

// Plot implements plot.Plotter.
func (m *cells) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	order := func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
	for _, at := range slices.SortedFunc(maps.Keys(m.bytes), order) {
		n := m.bytes[at]
		row, column := m.height(at[0]), float64(at[1])
		shade := m.shade(n)
		c.SetColor(blue(shade))
		c.Fill(vg.Rectangle{
			Min: vg.Point{X: x(column - 0.5), Y: y(row - 0.5)},
			Max: vg.Point{X: x(column + 0.5), Y: y(row + 0.5)},
		}.Path())
		if len(m.first) > maxFigures {
			continue
		}
		style := p.X.Tick.Label
		style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
		if shade > 0.5 {
			style.Color = color.White
		}
		c.FillText(style, vg.Point{X: x(column), Y: y(row)}, size(n))
	}
}

// blue returns a blue that is light for 0 and dark for 1.
func blue(shade float64) color.Color {
	mix := func(dark, light float64) uint8 { return uint8(light + (dark-light)*shade) }
	return color.RGBA{mix(0, 0xe6), mix(0x3a, 0xf0), mix(0x70, 0xfa), 0xff}
}
