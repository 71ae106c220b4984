package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/printable"
)

// Result is the first column of figures of a table, measured by weft or by OSU's benchmarks.
type Result struct {
	Name    string // short, for a legend
	File    string // the file that it was read from; empty for the run itself
	Title   string // what was measured, such as "OSU MPI Latency Test v7.3"
	Fabric  string // the fabric of the messages; empty if the file does not give it
	Setup   string // fabric, ranks and host; empty if the file does not give them
	Partial bool   // rows are missing
	measure *measure
	sizes   []int // ascending; a single 0 for a table without sizes, such as a barrier's
	values  []float64
}

// A measure is the quantity of figures, and whether less of it is better.
type measure struct {
	name, unit string
	less       bool
	axes       axes
}

var (
	latencyMeasure   = &measure{"Latency", "us", true, latencyAxes}
	bandwidthMeasure = &measure{"Bandwidth", "MB/s", false, bandwidthAxes}
)

// ratio returns a ratio above 1 if mine is better than theirs.
func (m *measure) ratio(mine, theirs float64) float64 {
	if m.less {
		return theirs / mine
	}
	return mine / theirs
}

func measureOf(unit string) *measure {
	switch unit {
	case latencyMeasure.unit:
		return latencyMeasure
	case bandwidthMeasure.unit:
		return bandwidthMeasure
	}
	return nil
}

// measure returns the measure of a benchmark's first figure; nil if it cannot be compared.
func (b *Benchmark) measure() *measure {
	if b.measureSize == nil {
		return nil
	}
	for _, c := range b.spec.columns {
		if m := measureOf(c.unit); m != nil {
			return m
		}
	}
	return nil
}

// add adds a figure, and keeps the sizes in order. It refuses a size that exists already.
func (r *Result) add(size int, value float64) error {
	if n := len(r.sizes); n > 0 && size <= r.sizes[n-1] {
		return fmt.Errorf("size %d after size %d: sizes have to ascend", size, r.sizes[n-1])
	}
	r.sizes, r.values = append(r.sizes, size), append(r.values, value)
	return nil
}

// at returns the figure of a size.
func (r *Result) at(size int) (float64, bool) {
	for i, n := range r.sizes {
		if n == size {
			return r.values[i], true
		}
	}
	return 0, false
}

// result returns the report's own table.
func (r *Report) result(name string) *Result {
	result := &Result{Name: name, Title: r.Title, Fabric: strings.Join(r.Fabrics, "+"), Setup: r.setup()}
	size, value := "", ""
	for _, c := range r.Columns {
		if c.Name == "size" {
			size = c.Name
		}
		if m := measureOf(c.Unit); m != nil && result.measure == nil {
			result.measure, value = m, c.Name
		}
	}
	for _, row := range r.Rows {
		n, sized := row[size].(float64)
		v, there := row[value].(float64)
		if there && v >= 0 && (sized && n == math.Trunc(n) && 0 <= n && n <= maxSize || size == "") {
			// A size that does not ascend is skipped; weft writes none.
			_ = result.add(int(n), v)
		}
	}
	return result
}

// label returns the name of a result in a table's heading and in a legend.
func (r *Result) label() string {
	if r.Fabric == "" {
		return r.Name
	}
	return fmt.Sprintf("%s (%s)", r.Name, r.Fabric)
}

// Limits of an input file.
const (
	maxBytes = 16 << 20
	maxSize  = 1 << 50
)

// readAlike reads files, each of which must have a table of a measure, and returns these tables.
func readAlike(paths []string, want *measure) (alike []*Result, err error) {
	for _, path := range paths {
		results, err := readResults(path)
		if err != nil {
			return nil, err
		}
		found := false
		for _, r := range results {
			if r.measure == want {
				alike, found = append(alike, r), true
			}
		}
		if !found {
			return nil, optionErrorf("%s: its tables have no column in %s to compare with: %q", path,
				want.unit, results[0].Title)
		}
	}
	return alike, nil
}

// readResults reads a file of at least one table: a Report, or the output of OSU's benchmarks or weft's. An
// error is an *OptionError, which names the file and, if there is one, the line.
func readResults(path string) ([]*Result, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var results []*Result
	if bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) {
		results, err = parseReport(content)
	} else {
		results, err = parseTables(string(content))
	}
	if at, ok := errors.AsType[*lineError](err); ok {
		return nil, optionErrorf("%s:%d: %v", path, at.line, at.err)
	}
	if err != nil {
		return nil, optionErrorf("%s: %v", path, err)
	}
	name := shortened(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	for _, r := range results {
		r.Name, r.File, r.Title = printable.Line(name), printable.Line(path), printable.Line(r.Title)
		r.Fabric, r.Setup = printable.Line(shortened(r.Fabric)), printable.Line(r.Setup)
	}
	return results, nil
}

// readFile reads a file of tables. An error is an *OptionError.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, optionErrorf("a table to compare with: %v", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, optionErrorf("a table to compare with: %v", err)
	}
	if len(content) > maxBytes {
		return nil, optionErrorf("%s: has more than %d MiB: no table has", path, maxBytes>>20)
	}
	return content, nil
}

// shortened shortens a name to leave room for the plot. It removes the middle, since names of similar files
// begin and end alike.
func shortened(name string) string {
	const maxName = 32
	if letters := []rune(name); len(letters) > maxName {
		return string(letters[:maxName/2-1]) + "…" + string(letters[len(letters)-maxName/2:])
	}
	return name
}

// lineError is an error in a line of a file, from 1.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

func lineErrorf(line int, text string, args ...any) error {
	return &lineError{line, fmt.Errorf(text, args...)}
}

// parseReport parses a Report.
func parseReport(content []byte) ([]*Result, error) {
	var r Report
	if err := json.Unmarshal(content, &r); err != nil {
		offset := int64(-1)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset
		} else if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			offset = mismatch.Offset
		}
		if 0 <= offset && offset <= int64(len(content)) {
			return nil, lineErrorf(1+bytes.Count(content[:offset], []byte("\n")),
				"no report of weft bench: %w", err)
		}
		return nil, fmt.Errorf("no report of weft bench: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("JSON, but no report of weft bench: its schema is %.40q, not %q", r.Schema,
			Schema)
	}
	result := r.result("")
	if result.measure == nil || len(result.sizes) == 0 {
		return nil, fmt.Errorf("a report of weft bench without rows of latencies or bandwidths, of %.40q",
			r.Benchmark)
	}
	result.Partial = !r.Complete
	return []*Result{result}, nil
}

var (
	titleLine = regexp.MustCompile(`^#\s*(OSU.*Test v[0-9.]+)`)
	// The headings of a table are at least two spaces apart, and may have one in them.
	headerLine = regexp.MustCompile(`^#\s*(Size\s{2,}\S.*|(?:Avg )?Latency ?\(us\).*)$`)
	gap        = regexp.MustCompile(`\s{2,}`)
)

// parseTables parses tables in the format of OSU's benchmarks.
func parseTables(text string) (results []*Result, err error) {
	var (
		title   string
		current *Result
		columns []string // of current
		figure  int      // the index of its figure
		began   int      // the line of its header
	)
	ended := func() error {
		if current != nil && len(current.sizes) == 0 {
			return lineErrorf(began, "a header without rows")
		}
		return nil
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if t := titleLine.FindStringSubmatch(line); t != nil {
			if err := ended(); err != nil {
				return nil, err
			}
			title, current = t[1], nil
			continue
		}
		if h := headerLine.FindStringSubmatch(line); h != nil {
			if n := len(results); n > 0 && results[n-1] == current && len(current.sizes) == 0 {
				results = results[:n-1] // some versions print two headers; the second one counts
			}
			columns, began = gap.Split(h[1], -1), number
			current = &Result{Title: title}
			if figure, current.measure = figureColumn(columns); current.measure == nil {
				return nil, lineErrorf(number, "no column of latencies in us or bandwidths in MB/s: %.80q",
					line)
			}
			results = append(results, current)
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if current == nil {
			return nil, lineErrorf(number, "neither a comment nor a row below a header such as %q: %.60q",
				"# Size         Avg Latency(us)", line)
		}
		fields := strings.Fields(line)
		if len(fields) != len(columns) {
			return nil, lineErrorf(number, "%d fields below a header of %d columns: %.60q", len(fields),
				len(columns), line)
		}
		size := uint64(0)
		if figure > 0 {
			if size, err = strconv.ParseUint(fields[0], 10, 50); err != nil {
				return nil, lineErrorf(number, "%.40q is no message size", fields[0])
			}
		}
		value, err := strconv.ParseFloat(fields[figure], 64)
		if err != nil || !(value >= 0) || math.IsInf(value, 0) {
			return nil, lineErrorf(number, "%.40q is no figure", fields[figure])
		}
		if figure == 0 && len(current.sizes) > 0 {
			return nil, lineErrorf(number, "a second row in a table without sizes")
		}
		if err := current.add(int(size), value); err != nil {
			return nil, lineErrorf(number, "%w", err)
		}
	}
	if err := ended(); err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, errors.New("no table in it: there is no header such as \"# Size         Avg " +
			"Latency(us)\"")
	}
	return results, nil
}

// figureColumn returns the column of the figure among headings.
func figureColumn(headings []string) (int, *measure) {
	for i, h := range headings {
		switch {
		case h == "Size":
		case strings.HasSuffix(h, "(us)"):
			return i, latencyMeasure
		case strings.HasSuffix(h, "MB/s") || strings.HasSuffix(h, "(MB/s)"):
			return i, bandwidthMeasure
		}
	}
	return 0, nil
}
