// Package picture draws plots below each other as SVG or PNG, or on an HTML page, in weft's style: on white
// paper, with letters that are in the program.
package picture

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"path/filepath"
	"strings"

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

const page = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>%s</title>
<style>body { font-family: sans-serif; margin: 2em } svg { max-width: 100%%; height: auto }</style>
<svg%s
<pre>%s</pre>
</html>
`

// Page writes one HTML page that needs no network: what draw draws as SVG, and text below it.
func Page(w io.Writer, title string, draw func(io.Writer) error, text string) error {
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	_, svg, _ := strings.Cut(b.String(), "<svg") // without the head of a file
	_, err := fmt.Fprintf(w, page, html.EscapeString(title), svg, html.EscapeString(text))
	return err
}

// DrawBeside draws a plot, and its legend to the right of it.
func DrawBeside(p *plot.Plot, legend *plot.Legend, area draw.Canvas) {
	room := legend.Rectangle(area).Size().X
	legend.Draw(draw.Crop(area, 0, 0, 0, -Margin))
	p.Draw(draw.Crop(area, 0, -room-Margin, 0, 0))
}

// colours are told apart by nearly all eyes.
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0xb2, 0x7d, 0x00, 0xff}, {0x56, 0x45, 0x7f, 0xff}, {0x33, 0x33, 0x33, 0xff}, {0x8c, 0x3b, 0x2e, 0xff},
	{0x6b, 0x7f, 0x00, 0xff},
}

// Colour is the i-th colour.
func Colour(i int) color.Color { return colours[i%len(colours)] }
