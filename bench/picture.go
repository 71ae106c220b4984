package bench

import (
	"image/color"
	"io"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// picture draws the chart as SVG or PNG, on white paper, panels below each other.
func (c *chart) picture(w io.Writer, format string) error {
	const (
		width, height = 24 * vg.Centimeter, 14 * vg.Centimeter // of a panel
		margin        = vg.Centimeter / 2
	)
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	all := vg.Length(len(c.panels)) * height
	canvas, err := draw.NewFormattedCanvas(width, all, format)
	if err != nil {
		return err
	}
	paper := draw.New(canvas)
	paper.SetColor(color.White)
	paper.Fill(paper.Rectangle.Path())
	for i, p := range c.panels {
		below := vg.Length(len(c.panels)-1-i) * height
		area := draw.Crop(paper, margin, -margin, below+margin, below+height-margin-all)
		title := c.title
		if i > 0 {
			title = ""
		}
		figure, legend := p.plot(title)
		if len(p.series) > 1 {
			room := legend.Rectangle(area).Size().X
			legend.Draw(draw.Crop(area, 0, 0, 0, -margin))
			area = draw.Crop(area, 0, -room-margin, 0, 0)
		}
		figure.Draw(area)
	}
	_, err = canvas.WriteTo(w)
	return err
}

// plot is the plot, and the legend to stand beside it.
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
		line.Color, line.Width = onLight(i), vg.Points(1.5)
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

// onLight is the colour of the i-th line on light paper.
func onLight(i int) color.Color {
	rgb, err := strconv.ParseUint(colours[i%len(colours)][0][1:], 16, 24)
	if err != nil {
		panic(err) // the table of colours is wrong
	}
	return color.RGBA{uint8(rgb >> 16), uint8(rgb >> 8), uint8(rgb), 0xff}
}
