package bench

import (
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weft-mpi/weft/internal/picture"
)

// picture draws the chart as SVG or PNG, with the panels below each other.
func (c *chart) picture(w io.Writer, format string) error {
	const width, height = 24 * vg.Centimeter, 14 * vg.Centimeter // of a panel
	return picture.Panels(w, format, width, height, len(c.panels), func(i int, area draw.Canvas) {
		p, title := c.panels[i], strings.Join(append([]string{c.title}, c.setups...), "\n")
		if i > 0 {
			title = ""
		}
		figure, legend := p.plot(title)
		if len(p.series) > 1 {
			picture.DrawBeside(figure, &legend, area)
		} else {
			figure.Draw(area)
		}
	})
}

// plot returns the plot, and the legend to draw next to it.
func (p *panel) plot(title string) (*plot.Plot, plot.Legend) {
	figure, legend := plot.New(), plot.NewLegend()
	figure.Title.Text, figure.X.Label.Text, figure.Y.Label.Text = title, p.axes.x, p.axes.y
	figure.Title.Padding = vg.Points(8)
	figure.X.Tick.Marker, figure.Y.Tick.Marker = binaryTicks{}, p.ticks
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe0}, color.Gray{0xe0}
	figure.Add(grid)
	for i, s := range p.series {
		points := make(plotter.XYs, len(s.points))
		for k, at := range s.points {
			points[k] = plotter.XY{X: at.logX, Y: at.logY}
		}
		line := &plotter.Line{XYs: points, LineStyle: plotter.DefaultLineStyle}
		line.Color, line.Width = picture.Colour(i), vg.Points(1.5)
		for _, length := range dashes[i%len(dashes)] {
			line.Dashes = append(line.Dashes, vg.Points(length))
		}
		dots := &plotter.Scatter{XYs: points, GlyphStyle: plotter.DefaultGlyphStyle}
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2)
		figure.Add(line, dots)
		legend.Add(s.name, line, dots)
	}
	figure.X.Min, figure.X.Max, figure.Y.Min, figure.Y.Max = p.bounds()
	legend.Top, legend.YPosition, legend.Padding = true, draw.PosCenter, vg.Points(3)
	return figure, legend
}
