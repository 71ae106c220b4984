package recorder

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/printable"
)

// Limits of a dump that is read.
const (
	maxLine  = 512
	maxLines = 2 * entries * contextid.MaxEndpoints
)

// A Record is a parsed dump.
type Record struct {
	Rank   int
	Title  string // its first line
	events []event
}

// event is a line of a dump.
type event struct {
	at   time.Time
	rank int
	text string // including the mark
}

// ErrNoDump is the error for a file that is not a dump.
var ErrNoDump = errors.New("not the events of a rank: it does not begin with \"" + title + "\"")

// Parse parses a dump.
func Parse(in io.Reader) (*Record, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, maxLine), maxLine)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), title) {
		return nil, ErrNoDump
	}
	d := &Record{Title: lines.Text()}
	number, _, _ := strings.Cut(strings.TrimPrefix(d.Title, title), " ")
	rank, err := strconv.ParseUint(number, 10, 24)
	if err != nil {
		return nil, fmt.Errorf("line 1: rank %q", number)
	}
	d.Rank = int(rank)
	for n := 2; lines.Scan(); n++ {
		if n > maxLines {
			return nil, fmt.Errorf("more than %d lines", maxLines)
		}
		when, text, _ := strings.Cut(lines.Text(), " ")
		at, err := time.Parse(timeFormat, when)
		if err != nil || len(text) < 3 || text[1] != ' ' {
			return nil, fmt.Errorf("line %d: not a time, a mark and an event", n)
		}
		d.events = append(d.events, event{at, d.Rank, text})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("a line of more than %d bytes: %w", maxLine, err)
	}
	return d, nil
}

// Merge writes the events of all dumps ordered by time, each with its rank. Events of one rank keep their
// order.
func Merge(out io.Writer, dumps []*Record) error {
	slices.SortStableFunc(dumps, func(a, b *Record) int { return a.Rank - b.Rank })
	var all []event
	width := 1
	b := bufio.NewWriter(out)
	for _, d := range dumps {
		fmt.Fprintln(b, printable.Line(d.Title))
		all = append(all, d.events...)
		width = max(width, len(strconv.Itoa(d.Rank)))
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.at.Compare(b.at) })
	for i := range all {
		e := &all[i]
		day := "15:04:05.000000000"
		fmt.Fprintf(b, "%s %*d %s\n", e.at.UTC().Format(day), width, e.rank, printable.Line(e.text))
	}
	return b.Flush()
}
