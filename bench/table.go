package bench

import (
	"fmt"
	"io"
)

// version is that of the tables, which parsers read.
const version = "0.1.0"

// table prints to the byte what OSU's benchmarks print. The first error of writing stays in err.
type table struct {
	out io.Writer
	err error
}

// columns are what a row has beyond its figure. Parsers anchor on the end of the line, so each of them has to be asked for.
type columns struct {
	digits     int
	rate       bool
	overlap    bool
	spread     bool
	validation bool
}

// cell is what is measured at one size: microseconds or MB/s, for some messages a second too, and for collectives the spread over the
// ranks. Where a message travels while its receiver computes: how long that is, how long the message takes alone, and the part of its way in
// per cent that took no more time.
type cell struct{ value, rate, min, max, compute, alone, overlap float64 }

func (t *table) printf(text string, args ...any) {
	if t.err == nil {
		if _, err := fmt.Fprintf(t.out, text, args...); err != nil {
			t.err = fmt.Errorf("writing the table: %w", err)
		}
	}
}

// heading prints what stands above the rows. Datatype and header may be empty.
func (t *table) heading(title, datatype, header string) {
	text := fmt.Sprintf("\n# OSU-style weft %s Test v%s\n", title, version)
	if datatype != "" {
		text += fmt.Sprintf("# Datatype: %s.\n", datatype)
	}
	if header != "" {
		text += header + "\n"
	}
	t.printf("%s", text)
}

// row prints a size's line.
func (t *table) row(show columns, n int, c cell, iterations int, ok bool) {
	t.printf("%-10d%20.*f%s\n", n, show.digits, c.value, show.rest(c, iterations, ok))
}

// single prints the line of a benchmark that has no sizes.
func (t *table) single(show columns, c cell, iterations int) {
	t.printf("%17.*f%s\n", show.digits, c.value, show.rest(c, iterations, true))
}

// rest is the end of a line.
func (show columns) rest(c cell, iterations int, ok bool) (text string) {
	if show.rate {
		text = fmt.Sprintf("%20.*f", show.digits, c.rate)
	}
	if show.overlap {
		text = fmt.Sprintf("%20.*f%20.*f%20.*f", show.digits, c.compute, show.digits, c.alone, show.digits, c.overlap)
	}
	if show.spread {
		text += fmt.Sprintf("%20.*f%20.*f%12d", show.digits, c.min, show.digits, c.max, iterations)
	}
	if show.validation {
		verdict := "Pass"
		if !ok {
			verdict = "Fail"
		}
		text += fmt.Sprintf("%20s", verdict)
	}
	return text
}
