package bench

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is the figures of a table as lines, to be drawn into a file that rank 0 has opened before anything is measured. The nil chart is
// that of nobody: it takes all and draws nothing.
type chart struct {
	file   *os.File
	format string
	fresh  bool // the file was empty, or did not exist
	series []*series
}

// series is one line. Its points have the logarithms to base 2 of the figures, so that the axes are logarithmic: gonum's own scale of that
// kind puts the labels out of place.
type series struct {
	name   string
	points plotter.XYs
}

// plotFormat is the format of a file by its name.
func plotFormat(path string) (string, error) {
	switch ending := filepath.Ext(path); ending {
	case ".svg", ".png":
		return ending[1:], nil
	}
	return "", optionErrorf("%q: a plot is a file whose name ends in .svg or .png", path)
}

// newChart opens the file, which keeps what it holds until the chart is drawn. An error is an *OptionError.
func newChart(path string) (*chart, error) {
	format, err := plotFormat(path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, optionErrorf("the plot cannot be written: %v", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(optionErrorf("the plot cannot be written: %v", err), f.Close())
	}
	return &chart{file: f, format: format, fresh: info.Mode().IsRegular() && info.Size() == 0}, nil
}

// add puts a point onto the line of that name. What is not above zero has no place on a logarithmic axis.
func (c *chart) add(name string, x int, y float64) {
	if c == nil || x <= 0 || !(y > 0) || math.IsInf(y, 0) {
		return
	}
	point := plotter.XY{X: math.Log2(float64(x)), Y: math.Log2(y)}
	for _, s := range c.series {
		if s.name == name {
			s.points = append(s.points, point)
			return
		}
	}
	c.series = append(c.series, &series{name, plotter.XYs{point}})
}

// discard closes the file and leaves nothing of it that was not there before.
func (c *chart) discard() error {
	if c == nil {
		return nil
	}
	if c.fresh {
		return errors.Join(c.file.Close(), os.Remove(c.file.Name()))
	}
	return c.file.Close()
}

// draw fills the file.
func (c *chart) draw(title string, a axes) error {
	if c == nil {
		return nil
	}
	if len(c.series) == 0 {
		return errors.Join(errors.New("the plot cannot be drawn: no figure is above zero"), c.discard())
	}
	if err := c.write(title, a); err != nil {
		return errors.Join(fmt.Errorf("the plot cannot be written: %w", err), c.file.Close())
	}
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("the plot cannot be written: %w", err)
	}
	return nil
}

func (c *chart) write(title string, a axes) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	canvas, err := draw.NewFormattedCanvas(24*vg.Centimeter, 14*vg.Centimeter, c.format)
	if err != nil {
		return err
	}
	const margin = vg.Centimeter / 2
	p, legend := c.plot(title, a)
	paper := draw.New(canvas)
	paper.SetColor(color.White)
	paper.Fill(paper.Rectangle.Path())
	paper = draw.Crop(paper, margin, -margin, margin, -margin)
	if len(c.series) > 1 {
		width := legend.Rectangle(paper).Size().X
		legend.Draw(draw.Crop(paper, 0, 0, 0, -margin))
		paper = draw.Crop(paper, 0, -width-margin, 0, 0)
	}
	p.Draw(paper)
	if info, err := c.file.Stat(); err == nil && info.Mode().IsRegular() {
		if err := c.file.Truncate(0); err != nil {
			return err
		}
	}
	_, err = canvas.WriteTo(c.file)
	return err
}

// axes are what a chart's axes show.
type axes struct {
	x, y  string
	ticks plot.Ticker // of y
}

var (
	latencyAxes   = axes{"Message size (bytes)", "Latency (µs)", decimalTicks{}}
	bandwidthAxes = axes{"Message size (bytes)", "Bandwidth (MB/s)", decimalTicks{}}
	memoryAxes    = axes{"Peers", "Memory of a connection (bytes)", binaryTicks{}}
)

// colours are told apart by nearly all eyes: those of Okabe and Ito.
var colours = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.Black,
}

// dashes tell lines apart that lie on each other.
var dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(3)}, {vg.Points(2), vg.Points(3)}}

// plot is the plot, and the legend to stand beside it.
func (c *chart) plot(title string, a axes) (*plot.Plot, plot.Legend) {
	p, legend := plot.New(), plot.NewLegend()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, a.x, a.y
	p.Title.Padding = vg.Points(8)
	p.X.Tick.Marker, p.Y.Tick.Marker = binaryTicks{}, a.ticks
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe0}, color.Gray{0xe0}
	p.Add(grid)
	for i, s := range c.series {
		line := &plotter.Line{XYs: s.points, LineStyle: plotter.DefaultLineStyle}
		line.Color, line.Width = colours[i%len(colours)], vg.Points(1.5)
		line.Dashes = dashes[i%len(dashes)]
		dots := &plotter.Scatter{XYs: s.points, GlyphStyle: plotter.DefaultGlyphStyle}
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2)
		p.Add(line, dots)
		legend.Add(s.name, line, dots)
	}
	// Room around the points: with a single one the axes would have no length.
	p.X.Min, p.X.Max = p.X.Min-0.5, p.X.Max+0.5
	p.Y.Min, p.Y.Max = p.Y.Min-1, p.Y.Max+1
	legend.Top, legend.YPosition, legend.Padding = true, draw.PosCenter, vg.Points(3)
	return p, legend
}

// Tickers get the ends of an axis, and give the places on it, as logarithms to base 2.

// binaryTicks are powers of two, with K, M and G for those of 1024.
type binaryTicks struct{}

func (binaryTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	const most = 14 // labels beside each other
	first, last := int(math.Ceil(low)), int(math.Floor(high))
	every := max(1, (last-first+most)/most)
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: float64(e)}
		if (e-first)%every == 0 {
			t.Label = binaryLabel(e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

func binaryLabel(e int) string {
	if e < 0 || e >= 40 {
		return strconv.FormatFloat(math.Ldexp(1, e), 'g', -1, 64)
	}
	return strings.TrimSpace(strconv.Itoa(1<<(e%10)) + " KMG"[e/10:][:1])
}

// decimalTicks are 1, 2 and 5 times the powers of ten; over many of these, the powers alone.
type decimalTicks struct{}

func (decimalTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	const mostDecades = 4 // in which 2 and 5 have a label too
	first, last := math.Floor(low*math.Log10(2)), math.Ceil(high*math.Log10(2))
	for e := first; e <= last; e++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, e)
			t := plot.Tick{Value: math.Log2(v)}
			if t.Value < low || t.Value > high {
				continue
			}
			if digit == 1 || last-first <= mostDecades {
				t.Label = strconv.FormatFloat(v, 'f', int(max(0, -e)), 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
