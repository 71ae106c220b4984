package tracereport

import (
	"fmt"
	"image/color"
	"io"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weft-mpi/weft/internal/picture"
)

// bins is the number of columns of the timeline.
const bins = 600

// Colours of the states of a rank.
var (
	outside  = picture.Colour(2)
	inCall   = picture.Colour(0)
	sleeping = picture.Colour(1)
)

// WritePlot draws the timeline, the matrix of bytes and the ranks' waiting, in the format of a path.
func (j *Job) WritePlot(w io.Writer, path string) error {
	format, err := picture.Format(path)
	if err != nil {
		return err
	}
	if format == "html" {
		var summary strings.Builder
		if err := j.WriteText(&summary); err != nil {
			return err
		}
		return picture.Page(w, "weft trace", func(w io.Writer) error { return j.picture(w, "svg") },
			summary.String())
	}
	return j.picture(w, format)
}

func (j *Job) picture(w io.Writer, format string) error {
	return picture.Panels(w, format, 24*vg.Centimeter, 11*vg.Centimeter, panels, j.panel)
}

const panels = 3

// panel draws the i-th panel.
func (j *Job) panel(i int, area draw.Canvas) {
	switch i {
	case 0:
		picture.DrawBeside(j.timeline(), keys(), area)
	case 1: // it has other colours
		j.matrix().Draw(area)
	case 2:
		picture.DrawBeside(j.waiting(), keys(), area)
	}
}

// column is the share of a timeline's column that a rank was in calls and asleep.
type column struct{ inCalls, asleep float64 }

// columns divides the time of a rank.
func (j *Job) columns(r *Rank) []column {
	list := make([]column, bins)
	width := float64(j.length()) / bins
	for _, s := range r.spans {
		from, to := float64(s.begin-j.Begin)/width, float64(s.end-j.Begin)/width
		for i := max(0, int(from)); i < bins && float64(i) < to; i++ {
			part := min(to, float64(i+1)) - max(from, float64(i))
			if s.asleep {
				list[i].asleep += part
			} else {
				list[i].inCalls += part
			}
		}
	}
	return list
}

// timeline returns a plot with a bar for each rank: its share outside of calls, in calls and asleep over
// time.
func (j *Job) timeline() *plot.Plot {
	p := plot.New()
	p.Title.Text = "What the ranks did"
	p.X.Label.Text, p.Y.Label.Text = "Seconds", "Rank"
	ranks := j.ordered()
	for row, r := range ranks {
		p.Add(&bar{row: float64(row), columns: j.columns(r), length: j.length().Seconds()})
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, j.length().Seconds(), -0.5, float64(len(ranks))-0.5
	p.Y.Tick.Marker = rankTicks(ranks)
	return p
}

// keys returns the legend of the colours.
func keys() *plot.Legend {
	l := plot.NewLegend()
	l.Top, l.YPosition, l.Padding = true, draw.PosCenter, vg.Points(3)
	for _, k := range []struct {
		name string
		of   color.Color
	}{{"outside of calls", outside}, {"in calls", inCall}, {"asleep in calls", sleeping}} {
		l.Add(k.name, key{k.of})
	}
	return &l
}

// key draws a colour in a legend.
type key struct{ of color.Color }

func (k key) Thumbnail(c *draw.Canvas) {
	c.SetColor(k.of)
	c.Fill(c.Rectangle.Path())
}

// bar is the timeline of one rank.
type bar struct {
	row, length float64
	columns     []column
}

// Plot implements plot.Plotter.
func (b *bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	low, high := y(b.row-0.4), y(b.row+0.4)
	for i := 0; i < len(b.columns); {
		next := i + 1 // equal columns are one rectangle
		for next < len(b.columns) && b.columns[next] == b.columns[i] {
			next++
		}
		left, right := x(b.length*float64(i)/bins), x(b.length*float64(next)/bins)
		at := low
		// Of several goroutines in calls at a time, no more than one is shown.
		slept := min(b.columns[i].asleep, 1)
		called := max(min(b.columns[i].inCalls, 1)-slept, 0)
		for _, part := range []struct {
			share float64
			of    color.Color
		}{{slept, sleeping}, {called, inCall}, {1 - slept - called, outside}} {
			top := at + vg.Length(part.share)*(high-low)
			if part.share > 0 {
				var path vg.Path
				path.Move(vg.Point{X: left, Y: at})
				path.Line(vg.Point{X: right, Y: at})
				path.Line(vg.Point{X: right, Y: top})
				path.Line(vg.Point{X: left, Y: top})
				path.Close()
				c.SetColor(part.of)
				c.Fill(path)
			}
			at = top
		}
		i = next
	}
}

// rankTicks returns ticks with the ranks' numbers, as many as fit.
func rankTicks(ranks []*Rank) plot.Ticker {
	every := 1 + (len(ranks)-1)/16
	var list []plot.Tick
	for i, r := range ranks {
		if i%every == 0 {
			list = append(list, plot.Tick{Value: float64(i), Label: fmt.Sprint(r.Number)})
		}
	}
	return plot.ConstantTicks(list)
}

// waiting returns a plot with a bar for each rank: its time outside of calls, in calls and asleep.
func (j *Job) waiting() *plot.Plot {
	p := plot.New()
	p.Title.Text = "Time of each rank"
	p.X.Label.Text, p.Y.Label.Text = "Rank", "Seconds"
	ranks := j.ordered()
	values := make([]plotter.Values, 3)
	for _, r := range ranks {
		slept := min(r.Asleep, j.length())
		called := min(max(r.InCalls-slept, 0), j.length()-slept)
		for i, d := range []time.Duration{slept, called, j.length() - slept - called} {
			values[i] = append(values[i], d.Seconds())
		}
	}
	var below *plotter.BarChart
	for i, of := range []color.Color{sleeping, inCall, outside} {
		b, err := plotter.NewBarChart(values[i], 12*vg.Centimeter/vg.Length(len(ranks)))
		if err != nil {
			continue // without ranks
		}
		b.Color, b.LineStyle.Width = of, 0
		if below != nil {
			b.StackOn(below)
		}
		below = b
		p.Add(b)
	}
	p.X.Tick.Marker = rankTicks(ranks)
	return p
}
