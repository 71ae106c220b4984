// Package picture draws plots below each other as SVG or PNG, in weft's style: on white paper, with letters
// that are in the program.
package picture

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Format is the format of a file by its name: svg, png or html.
func Format(path string) (string, error) {
	switch ending := filepath.Ext(path); ending {
	case ".svg", ".png", ".html":
		return ending[1:], nil
	}
	return "", fmt.Errorf("%q: a plot is a file whose name ends in .svg, .png or .html", path)
}

// Margin is around each panel.
const Margin = vg.Centimeter / 2

// Panels draws n panels of one size, svg or png: each draws the i-th one.
func Panels(w io.Writer, format string, width, height vg.Length, n int,
	each func(i int, area draw.Canvas)) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	all := vg.Length(n) * height
	canvas, err := draw.NewFormattedCanvas(width, all, format)
	if err != nil {
		return err
	}
	paper := draw.New(canvas)
	paper.SetColor(color.White)
	paper.Fill(paper.Rectangle.Path())
	for i := range n {
		below := vg.Length(n-1-i) * height
		each(i, draw.Crop(paper, Margin, -Margin, below+Margin, below+height-Margin-all))
	}
	_, err = canvas.WriteTo(w)
	return err
}

// DrawBeside draws a plot, and its legend to the right of it.
func DrawBeside(p *plot.Plot, legend *plot.Legend, area draw.Canvas) {
	room := legend.Rectangle(area).Size().X
	legend.Draw(draw.Crop(area, 0, 0, 0, -Margin))
	p.Draw(draw.Crop(area, 0, -room-Margin, 0, 0))
}

// Colours are told apart by nearly all eyes, on light and on dark paper: the first of each pair is for light
// paper.
var Colours = [][2]string{
	{"#0072b2", "#56b4e9"}, {"#d55e00", "#ff8c42"}, {"#009e73", "#2fd0a0"}, {"#cc79a7", "#e89ac7"},
	{"#b27d00", "#f0c040"},
	{"#56457f", "#b09fe0"}, {"#333333", "#d0d0d0"}, {"#8c3b2e", "#d98c7f"}, {"#6b7f00", "#c3d94a"},
}

// OnLight is the i-th colour, for light paper.
func OnLight(i int) color.Color {
	rgb, err := strconv.ParseUint(Colours[i%len(Colours)][0][1:], 16, 24)
	if err != nil {
		panic(err) // the table of colours is wrong
	}
	return color.RGBA{uint8(rgb >> 16), uint8(rgb >> 8), uint8(rgb), 0xff}
}
