package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"

	"github.com/weft-mpi/weft/internal/picture"
)

// chart shows figures as lines, in a panel for each kind of figure. It can be drawn as SVG, PNG and HTML, in
// one style.
type chart struct {
	title  string
	setups []string // descriptions of the measured systems, a line each
	panels []*panel
}

// panel has lines with the same two axes.
type panel struct {
	axes
	series []*series
}

// series is one line.
type series struct {
	name   string
	points []point
}

// point also has the logarithms to base 2, which are its position: both axes are logarithmic, and gonum's
// logarithmic scale misplaces the labels.
type point struct{ x, y, logX, logY float64 }

// axes describes a panel's axes.
type axes struct {
	x, y  string
	unit  string      // of y
	ticks plot.Ticker // of y
}

var (
	latencyAxes   = axes{"Message size (bytes)", "Latency (µs)", "µs", decimalTicks{}}
	bandwidthAxes = axes{"Message size (bytes)", "Bandwidth (MB/s)", "MB/s", decimalTicks{}}
	rateAxes      = axes{"Message size (bytes)", "Messages (millions/s)", "1/µs", decimalTicks{}}
	phaseAxes     = axes{"Peers", "Memory of a connection (bytes)", "bytes", binaryTicks{}}
	memoryAxes    = axes{"Ranks", "Memory of a rank (bytes)", "bytes", binaryTicks{}}
)

// dashes distinguish overlapping lines: lengths of strokes and gaps, in points.
var dashes = [][]float64{nil, {6, 3}, {2, 3}}

// plotFormat returns the format of a file by its name.
func plotFormat(path string) (string, error) {
	format, err := picture.Format(path)
	if err != nil {
		return "", optionErrorf("%v", err)
	}
	return format, nil
}

// write draws the chart in the format of a path.
func (c *chart) write(w io.Writer, path string) error {
	format, err := plotFormat(path)
	if err != nil {
		return err
	}
	shown := &chart{title: c.title, setups: c.setups}
	for _, p := range c.panels {
		if len(p.series) > 0 {
			shown.panels = append(shown.panels, p)
		}
	}
	if len(shown.panels) == 0 {
		return errors.New("no figure is above zero")
	}
	if format == "html" {
		return picture.Page(w, c.title, func(w io.Writer) error { return shown.picture(w, "svg") },
			shown.text())
	}
	return shown.picture(w, format)
}

// text returns the figures as a table for each panel.
func (c *chart) text() string {
	var b strings.Builder
	for _, p := range c.panels {
		fmt.Fprintf(&b, "%s\n\n", p.axes.y)
		table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintf(table, "%s\t", p.axes.x)
		rows := map[float64][]string{} // by place on the horizontal axis
		for i, s := range p.series {
			fmt.Fprintf(table, "%s\t", s.name)
			for _, at := range s.points {
				if rows[at.x] == nil {
					rows[at.x] = make([]string, len(p.series))
				}
				rows[at.x][i] = p.label(at.y)
			}
		}
		fmt.Fprintln(table)
		for _, x := range slices.Sorted(maps.Keys(rows)) {
			fmt.Fprintf(table, "%.0f\t%s\t\n", x, strings.Join(rows[x], "\t"))
		}
		table.Flush()
		b.WriteByte('\n')
	}
	return b.String()
}

// add adds a point to the line of a name. It drops values that are not above zero, which a logarithmic axis
// cannot show.
func (p *panel) add(name string, x, y float64) {
	if !(x > 0) || !(y > 0) || math.IsInf(x, 0) || math.IsInf(y, 0) {
		return
	}
	at := point{x, y, math.Log2(x), math.Log2(y)}
	for _, s := range p.series {
		if s.name == name {
			s.points = append(s.points, at)
			return
		}
	}
	p.series = append(p.series, &series{name, []point{at}})
}

// bounds returns the ends of the axes, as logarithms, with room around the points, since with a single one
// the axes would have no length.
func (p *panel) bounds() (lowX, highX, lowY, highY float64) {
	lowX, lowY, highX, highY = math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, s := range p.series {
		for _, at := range s.points {
			lowX, highX = min(lowX, at.logX), max(highX, at.logX)
			lowY, highY = min(lowY, at.logY), max(highY, at.logY)
		}
	}
	return lowX - 0.5, highX + 0.5, lowY - 1, highY + 1
}

// chartOf returns a chart with a panel for each kind of figure among results, and a line for each result.
func chartOf(title string, results []*Result) *chart {
	c := &chart{title: title}
	for _, m := range []*measure{latencyMeasure, bandwidthMeasure} {
		p := &panel{axes: m.axes}
		for _, r := range ofMeasure(results, m) {
			for i, n := range r.sizes {
				p.add(r.label(), float64(n), r.values[i])
			}
		}
		c.panels = append(c.panels, p)
	}
	for _, r := range results {
		if r.Setup != "" {
			c.setups = append(c.setups, r.label()+": "+r.Setup)
		}
	}
	return c
}

// lineName returns the name of a column's line in a legend.
func lineName(c *column) string {
	switch c.name {
	case "latency", "bandwidth":
		return "average"
	case "min":
		return "minimum"
	case "max":
		return "maximum"
	case "p99_9":
		return "P99.9"
	case "p50", "p90", "p99":
		return strings.ToUpper(c.name)
	}
	return c.name
}

// label formats a figure without insignificant digits.
func (a *axes) label(v float64) string {
	switch {
	case v >= 1e4 || a.unit == "bytes":
		return fmt.Sprintf("%.0f %s", v, a.unit)
	case v >= 100:
		return fmt.Sprintf("%.1f %s", v, a.unit)
	}
	return fmt.Sprintf("%.3g %s", v, a.unit)
}
