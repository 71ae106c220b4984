package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// version is the version of the tables, which parsers read.
const version = "0.1.0"

// table prints exactly the format of OSU's benchmarks. err is the first error of writing.
type table struct {
	out io.Writer
	err error
}

// A column is a column of a table, in print and in a report.
type column struct {
	name    string // in a report
	heading string
	unit    string // us, MB/s, 1/s, %, bytes, ms; empty for a plain number
	width   int    // of heading and figures; left-aligned if below zero
	left    int    // how far the heading is to the left of its figures, as in OSU's tables
	form    form
	shown   showing
	of      func(c *measurement) float64
	// if not 0: the number, from 1, of the earlier job from whose report the figures of column source are
	// taken
	beside int
	source string
}

// form is the form of a column's figures.
type form int

const (
	decimal form = iota // with the number of decimals that the user has set
	whole
	verdict // 0 is a failure
)

// showing is the option that prints a column. Parsers anchor on the end of the line, so columns that OSU's
// benchmarks do not print by default must be requested. Reports have them all.
type showing int

const (
	always showing = iota
	ifFull
	ifTails
	ifValidated
	inReports
)

func (c *column) printed(o *Options) bool {
	if c.beside > 0 {
		return c.beside <= len(o.Beside) && o.Beside[c.beside-1] != ""
	}
	switch c.shown {
	case ifFull:
		return o.Full
	case ifTails:
		return o.Tails
	case ifValidated:
		return o.Validate
	}
	return c.shown == always
}

// reported reports whether a run with such options has measured the column.
func (c *column) reported(o *Options) bool {
	return c.shown != ifTails && c.shown != ifValidated && c.beside == 0 || c.printed(o)
}

func (c *column) text(v float64, digits int) string {
	if math.IsNaN(v) {
		return fmt.Sprintf("%*s", c.width, "-")
	}
	switch c.form {
	case whole:
		return fmt.Sprintf("%*.0f", c.width, v)
	case verdict:
		if v == 0 {
			return fmt.Sprintf("%*s", c.width, "Fail")
		}
		return fmt.Sprintf("%*s", c.width, "Pass")
	}
	return fmt.Sprintf("%*.*f", c.width, digits, v)
}

// measurement is the result at one size: microseconds or MB/s, for some benchmarks also messages a second,
// the spread over the ranks, and the percentiles 50, 90, 99, 99.9 and 100 of single iterations, in the
// table's unit. With computation: its time, the baseline, which is the message's time without it, and the
// percentage of the transfer that it hides. In other benchmarks the baseline is another way of doing the
// same.
type measurement struct {
	size, iterations                                  int
	value, rate, min, max, compute, baseline, overlap float64
	tails                                             [len(percentiles)]float64
	wrong                                             bool
}

// row returns a measurement's figures, by columns.
func row(columns []column, c *measurement) []float64 {
	figures := make([]float64, len(columns))
	for i, column := range columns {
		figures[i] = column.of(c)
	}
	return figures
}

func (t *table) printf(text string, args ...any) {
	if t.err == nil {
		if _, err := fmt.Fprintf(t.out, text, args...); err != nil {
			t.err = fmt.Errorf("writing the table: %w", err)
		}
	}
}

// heading prints the lines above the rows. Datatype and preamble are whole lines, or empty.
func (t *table) heading(title, datatype, preamble string, columns []column, o *Options) {
	text := fmt.Sprintf("\n# %s\n", title)
	if datatype != "" {
		text += fmt.Sprintf("# Datatype: %s.\n", datatype)
	}
	if preamble != "" {
		text += preamble + "\n"
	}
	header := ""
	for _, c := range columns {
		if c.printed(o) {
			header += fmt.Sprintf("%*s", c.width-c.left, c.heading)
		}
	}
	if header != "" {
		text += header + "\n"
	}
	t.printf("%s", text)
}

// row prints a line.
func (t *table) row(columns []column, figures []float64, o *Options) {
	line := ""
	for i, c := range columns {
		if c.printed(o) {
			line = withCell(line, c.text(figures[i], o.Digits))
		}
	}
	t.printf("%s\n", line)
}

// withCell appends a cell to a line, after a space if the cell has none because it fills its column.
func withCell(line, cell string) string {
	if line == "" || strings.HasSuffix(line, " ") || strings.HasPrefix(cell, " ") {
		return line + cell
	}
	return line + " " + cell
}

// Columns of several tables.

var (
	sizeColumn = column{name: "size", heading: "# Size", unit: "bytes", width: -10, form: whole,
		of: func(c *measurement) float64 { return float64(c.size) }}
	latencyColumn    = column{name: "latency", heading: "Avg Latency(us)", unit: "us", width: 20, of: valueOf}
	validationColumn = column{name: "valid", heading: "Validation", width: 20, form: verdict,
		shown: ifValidated,
		of: func(c *measurement) float64 {
			if c.wrong {
				return 0
			}
			return 1
		}}
)

func valueOf(c *measurement) float64 { return c.value }

// spreadColumns returns the columns of figures that differ between ranks.
func spreadColumns() []column {
	return []column{
		{name: "min", heading: "Min Latency(us)", unit: "us", width: 20, shown: ifFull,
			of: func(c *measurement) float64 { return c.min }},
		{name: "max", heading: "Max Latency(us)", unit: "us", width: 20, shown: ifFull,
			of: func(c *measurement) float64 { return c.max }},
		iterationsColumn(ifFull),
	}
}

func iterationsColumn(shown showing) column {
	return column{name: "iterations", heading: "Iterations", width: 12, form: whole, shown: shown,
		of: func(c *measurement) float64 { return float64(c.iterations) }}
}

// tailColumns returns the columns of single iterations. In a table of bandwidths the slowest is the least.
func tailColumns(unit string) (columns []column) {
	headings := [len(percentiles)]string{"P50 Tail Lat(us)", "P90 Tail Lat(us)", "P99 Tail Lat(us)",
		"P99.9 Tail Lat(us)", "Max Tail Lat(us)"}
	if unit == "MB/s" {
		headings = [...]string{"P50 Tail BW(MB/s)", "P90 Tail BW(MB/s)", "P99 Tail BW(MB/s)",
			"P99.9 Tail BW(MB/s)", "Min Tail BW(MB/s)"}
	}
	for i, name := range [len(percentiles)]string{"p50", "p90", "p99", "p99_9", "slowest"} {
		columns = append(columns, column{name: name, heading: headings[i], unit: unit,
			width: max(20, len(headings[i])+2), shown: ifTails,
			of: func(c *measurement) float64 { return c.tails[i] }})
	}
	return columns
}

// figure reports whether v is a figure: it is not if a time was too short for the clock.
func figure(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// trimHeading returns a heading without the mark of a comment.
func trimHeading(heading string) string { return strings.TrimPrefix(heading, "# ") }
