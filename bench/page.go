package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"github.com/weft-mpi/weft/internal/picture"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>%[1]s</title>
<style>
%[2]s</style>
</head>
<body>
<h1>%[1]s</h1>
`

// page draws the chart as one HTML page that needs no network: every panel as SVG, once for wide screens and
// once for narrow ones, and the figures as a table. Its script shows the figures below the pointer.
//
// The page is written without html/template, which would make the linker keep all exported methods, and the
// command a fifth larger. Texts pass through text or encoding/json, which escape HTML.
func (c *chart) page(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, pageHead, text(c.title), pageStyle+styleOfColours())
	for _, setup := range c.setups {
		fmt.Fprintf(&b, "<p>%s</p>\n", text(setup))
	}
	var data []pageData
	for _, p := range c.panels {
		own := p.data()
		data = append(data, own)
		fmt.Fprintf(&b, "<figure>\n<h2>%s</h2>\n<ul>", text(p.axes.y))
		for i, s := range p.series {
			fmt.Fprintf(&b, `<li class="c%d"><svg class="key" viewBox="0 0 28 10" aria-hidden="true">`, i%len(picture.Colours))
			fmt.Fprintf(&b, `<path class="line" d="M0 5L28 5"%s/><circle class="dot" cx="14" cy="5" r="3"/></svg>%s</li>`, dashing(i), text(s.name))
		}
		b.WriteString("</ul>\n")
		p.draw("wide", 860, 430).write(&b, p)
		p.draw("narrow", 380, 330).write(&b, p)
		own.write(&b)
		b.WriteString("</figure>\n")
	}
	figures, err := json.Marshal(data)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "<script type=\"application/json\" "+
		"id=\"figures\">%s</script>\n<script>\n%s</script>\n</body>\n</html>\n", figures, pageScript)
	_, err = io.WriteString(w, b.String())
	return err
}

// text escapes text for HTML.
func text(s string) string { return html.EscapeString(s) }

// styleOfColours gives each colour a class.
func styleOfColours() string {
	var b strings.Builder
	for i, pair := range picture.Colours {
		fmt.Fprintf(&b, ".c%d { --line: %s; }\n", i, pair[0])
	}
	b.WriteString("@media (prefers-color-scheme: dark) {\n")
	for i, pair := range picture.Colours {
		fmt.Fprintf(&b, "  .c%d { --line: %s; }\n", i, pair[1])
	}
	b.WriteString("}\n")
	return b.String()
}

// dashing returns an attribute, or nothing for a line without gaps.
func dashing(i int) string {
	var lengths []string
	for _, length := range dashes[i%len(dashes)] {
		lengths = append(lengths, fmt.Sprint(length))
	}
	if lengths == nil {
		return ""
	}
	return fmt.Sprintf(` stroke-dasharray="%s"`, strings.Join(lengths, " "))
}

// pageData has the figures of a panel: those of all lines at each place of the horizontal axis.
type pageData struct {
	X       string     `json:"x"`
	Names   []string   `json:"names"`
	Colours []int      `json:"colours"`
	Places  []float64  `json:"places"` // on the logarithmic axis
	Sizes   []string   `json:"sizes"`
	Values  [][]string `json:"values"` // at each place, of each line; empty for none
}

func (p *panel) data() pageData {
	d := pageData{X: p.axes.x}
	sizes := map[float64]point{}
	for i, s := range p.series {
		d.Names, d.Colours = append(d.Names, s.name), append(d.Colours, i%len(picture.Colours))
		for _, at := range s.points {
			sizes[at.x] = at
		}
	}
	for _, x := range slices.Sorted(maps.Keys(sizes)) {
		var values []string
		for _, s := range p.series {
			value := ""
			for _, at := range s.points {
				if at.x == x {
					value = p.label(at.y)
				}
			}
			values = append(values, value)
		}
		d.Places, d.Sizes, d.Values = append(d.Places, sizes[x].logX),
			append(d.Sizes, fmt.Sprintf("%.0f", x)), append(d.Values, values)
	}
	return d
}

// write writes the figures as a collapsed table.
func (d *pageData) write(b *strings.Builder) {
	fmt.Fprintf(b, "<div class=\"values\" aria-hidden=\"true\"></div>\n<details><summary>Figures</summary><div class=\"scroll\"><table>\n"+
		"<thead><tr><th scope=\"col\">%s</th>", text(d.X))
	for _, name := range d.Names {
		fmt.Fprintf(b, "<th scope=\"col\">%s</th>", text(name))
	}
	b.WriteString("</tr></thead>\n<tbody>")
	for i, size := range d.Sizes {
		fmt.Fprintf(b, "<tr><th scope=\"row\">%s</th>", size)
		for _, value := range d.Values[i] {
			fmt.Fprintf(b, "<td>%s</td>", value)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody></table></div></details>\n")
}

// drawing has the positions of a panel's parts in an SVG of a width and height, in pixels of a wide or a
// narrow screen.
type drawing struct {
	class                    string
	width, height            float64
	left, right, top, bottom float64 // of the area between the axes
	low, high                float64 // the ends of the horizontal axis, as logarithms
	x, y                     []mark
	lines                    [][]place // positions of the points of each line
}

type mark struct {
	at    float64
	label string // empty for a tick without a label
}

type place struct{ x, y float64 }

// Sizes of letters: a digit of the page's font is narrower than this, and a line of text lower.
const (
	letterWidth = 7.5
	lineHeight  = 15
)

// draw lays the panel out.
func (p *panel) draw(class string, width, height float64) *drawing {
	const margin = 12
	lowX, highX, lowY, highY := p.bounds()
	ticksY := p.ticks.Ticks(lowY, highY)
	longest := 0
	for _, t := range ticksY {
		longest = max(longest, len(t.Label))
	}
	d := &drawing{
		class: class, width: width, height: height, low: lowX, high: highX,
		left: margin + letterWidth*float64(longest), right: width - margin, top: margin,
		bottom: height - 3*lineHeight,
	}
	x := func(v float64) float64 { return tenths(d.left + (v-lowX)/(highX-lowX)*(d.right-d.left)) }
	y := func(v float64) float64 { return tenths(d.bottom - (v-lowY)/(highY-lowY)*(d.bottom-d.top)) }
	d.x = thinned(binaryTicks{}.Ticks(lowX, highX), x,
		func(label string) float64 { return letterWidth * float64(len(label)+1) })
	d.y = thinned(ticksY, y, func(string) float64 { return lineHeight + 3 })
	for _, s := range p.series {
		var line []place
		for _, at := range s.points {
			line = append(line, place{x(at.logX), y(at.logY)})
		}
		d.lines = append(d.lines, line)
	}
	return d
}

func tenths(v float64) float64 { return math.Round(v*10) / 10 }

// thinned returns ticks at their positions, with as many labels as fit: all, else those of the powers of ten,
// if there are some, else every second, every third …
func thinned(ticks []plot.Tick, at func(float64) float64, need func(label string) float64) []mark {
	var all, powers []int
	for i, t := range ticks {
		if t.Label == "" {
			continue
		}
		all = append(all, i)
		if math.Abs(math.Remainder(t.Value*math.Log10(2), 1)) < 1e-9 {
			powers = append(powers, i)
		}
	}
	fits := func(labelled []int) bool {
		for k := 1; k < len(labelled); k++ {
			a, b := ticks[labelled[k-1]], ticks[labelled[k]]
			if math.Abs(at(b.Value)-at(a.Value)) < max(need(a.Label), need(b.Label)) {
				return false
			}
		}
		return true
	}
	chosen := all
	if !fits(all) && len(powers) > 1 {
		all, chosen = powers, powers
	}
	for every := 2; !fits(chosen); every++ {
		chosen = nil
		for k := 0; k < len(all); k += every {
			chosen = append(chosen, all[k])
		}
	}
	var placed []mark
	for i, t := range ticks {
		own := mark{at: at(t.Value)}
		if slices.Contains(chosen, i) {
			own.label = t.Label
		}
		placed = append(placed, own)
	}
	return placed
}

// write writes the drawing as SVG.
func (d *drawing) write(b *strings.Builder, p *panel) {
	fmt.Fprintf(b, `<svg class="%s" viewBox="0 0 %g %g" role="img" aria-label="%s" data-left="%g" data-right="%g" data-low="%g" data-high="%g">`+"\n",
		d.class, d.width, d.height, text(p.axes.y), d.left, d.right, d.low, d.high)
	for _, t := range d.x {
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%g" y2="%g"/>`, t.at, t.at, d.top, d.bottom)
		if t.label != "" {
			fmt.Fprintf(b, `<text x="%g" y="%g" dy="17" text-anchor="middle">%s</text>`, t.at, d.bottom, t.label)
		}
	}
	b.WriteString("\n")
	for _, t := range d.y {
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%g" y2="%g"/>`, d.left, d.right, t.at, t.at)
		if t.label != "" {
			fmt.Fprintf(b, `<text x="%g" dx="-6" y="%g" dy="4" text-anchor="end">%s</text>`, d.left, t.at, t.label)
		}
	}
	fmt.Fprintf(b, "\n"+`<path class="frame" d="M%g %gL%g %gL%g %g"/>`, d.left, d.top, d.left, d.bottom, d.right, d.bottom)
	fmt.Fprintf(b, `<text x="%g" y="%g" dy="-6" text-anchor="middle">%s</text>`+"\n", (d.left+d.right)/2, d.height, text(p.axes.x))
	for i, line := range d.lines {
		fmt.Fprintf(b, `<g class="c%d"><path class="line"%s d="`, i%len(picture.Colours), dashing(i))
		for k, at := range line {
			command := byte('L')
			if k == 0 {
				command = 'M'
			}
			fmt.Fprintf(b, "%c%g %g", command, at.x, at.y)
		}
		b.WriteString(`"/>`)
		for k, at := range line {
			s := p.series[i]
			fmt.Fprintf(b, `<circle class="dot" cx="%g" cy="%g" r="3"><title>%s, %.0f: %s</title></circle>`, at.x, at.y, text(s.name),
				s.points[k].x, p.label(s.points[k].y))
		}
		b.WriteString("</g>\n")
	}
	fmt.Fprintf(b, `<line class="cross" x1="0" x2="0" y1="%g" y2="%g"/>`+"\n</svg>\n", d.top, d.bottom)
}
