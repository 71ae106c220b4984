package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The Matrix Market exchange format (Boisvert, Pozo and Remington, NISTIR 5935): a line that says what the
// file has, comments, a line with the sizes, and a line for each number.

const (
	maxRows    = 1 << 31
	maxLine    = 1 << 16
	ahead      = 1 << 20 // numbers that memory is taken for before they have been read
	largestAbs = 1e100
)

// reader reads lines, and knows which one it is at.
type reader struct {
	lines  *bufio.Scanner
	number int
	fields []string // of the present line
}

func newReader(r io.Reader) *reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	return &reader{lines: lines}
}

// next goes to the next line that is neither a comment nor empty. At the end it fails; what describes the
// expected line.
func (r *reader) next(what string) error {
	for r.lines.Scan() {
		r.number++
		text := r.lines.Text()
		if r.fields = strings.Fields(text); len(r.fields) > 0 && text[0] != '%' {
			return nil
		}
	}
	switch err := r.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("line %d: longer than %d bytes", r.number+1, maxLine)
	case err != nil:
		return fmt.Errorf("line %d: %w", r.number+1, err)
	}
	return fmt.Errorf("line %d: the file ends before %s", r.number+1, what)
}

func (r *reader) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{r.number}, args...)...)
}

// header reads the first line, and returns its words after "%%MatrixMarket matrix".
func (r *reader) header() ([]string, error) {
	const want = "%%MatrixMarket matrix"
	if !r.lines.Scan() {
		if err := r.lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
			return nil, err
		}
		return nil, fmt.Errorf("line 1: not a Matrix Market file: it begins with %q", want)
	}
	r.number++
	words := strings.Fields(strings.ToLower(r.lines.Text()))
	if len(words) != 5 || words[0]+" "+words[1] != strings.ToLower(want) {
		return nil, r.fail("%.60q: a Matrix Market file begins with %q and three more words",
			r.lines.Text(), want)
	}
	return words[2:], nil
}

// size turns a field of the line with the sizes into a number.
func (r *reader) size(field int, what string, largest int) (int, error) {
	n, err := strconv.Atoi(r.fields[field])
	if err != nil || n < 0 || n > largest {
		return 0, r.fail("%.40q %s: must be a number from 0 to %d", r.fields[field], what, largest)
	}
	return n, nil
}

// index turns a field into an index from 0 on; files count from 1.
func (r *reader) index(field int, what string, size int) (int, error) {
	n, err := strconv.Atoi(r.fields[field])
	if err != nil || n < 1 || n > size {
		return 0, r.fail("%s %.40q: must be a number from 1 to %d", what, r.fields[field], size)
	}
	return n - 1, nil
}

// value turns a field into a number of the matrix.
func (r *reader) value(field int) (float64, error) {
	v, err := strconv.ParseFloat(r.fields[field], 64)
	if err != nil || !(math.Abs(v) <= largestAbs) { // not a number, too
		return 0, r.fail("%.40q: must be a number from %g to %g", r.fields[field], -largestAbs, largestAbs)
	}
	return v, nil
}

// end makes sure that nothing follows.
func (r *reader) end(numbers int) error {
	err := r.next("its end")
	if err == nil {
		return r.fail("more than the %d numbers that the sizes announce", numbers)
	}
	if r.lines.Err() != nil {
		return err
	}
	return nil
}

// parseMatrix reads a square matrix in coordinate format, of real numbers, integers or a pattern, whose
// numbers are all 1. Of a symmetric matrix the file has the lower triangle; the result has all of it.
func parseMatrix(file io.Reader) (coordinates, error) {
	r := newReader(file)
	words, err := r.header()
	if err != nil {
		return coordinates{}, err
	}
	format, field, symmetry := words[0], words[1], words[2]
	switch {
	case format != "coordinate":
		return coordinates{}, r.fail("a matrix in %.40q format; only \"coordinate\" can be read", format)
	case field != "real" && field != "integer" && field != "pattern" && field != "double":
		return coordinates{}, r.fail("numbers of the kind %.40q; only \"real\", \"integer\" and \"pattern\" "+
			"can be read", field)
	case symmetry != "symmetric" && symmetry != "general":
		return coordinates{}, r.fail("the matrix is %.40q; conjugate gradients need \"symmetric\", or "+
			"\"general\" with all numbers of a symmetric matrix", symmetry)
	}
	rows, count, err := r.matrixSizes()
	if err != nil {
		return coordinates{}, err
	}
	c := coordinates{rows, make([]entry, 0, min(2*count, ahead))}
	all := fmt.Sprintf("all its %d numbers", count)
	for range count {
		e, err := r.entry(rows, field == "pattern", all)
		if err != nil {
			return coordinates{}, err
		}
		c.entries = append(c.entries, e)
		if symmetry == "general" || e.row == e.column {
			continue
		}
		if e.row < e.column {
			return coordinates{}, r.fail("row %d, column %d is above the diagonal; of a symmetric matrix "+
				"only the lower triangle is in the file", e.row+1, e.column+1)
		}
		c.entries = append(c.entries, entry{e.column, e.row, e.value})
	}
	return c, r.end(count)
}

// matrixSizes reads the line with the rows, the columns and the count of numbers.
func (r *reader) matrixSizes() (rows, count int, err error) {
	if err := r.next("the sizes"); err != nil {
		return 0, 0, err
	}
	if len(r.fields) != 3 {
		return 0, 0, r.fail("%d fields; the sizes are rows, columns and numbers", len(r.fields))
	}
	if rows, err = r.size(0, "rows", maxRows); err != nil {
		return 0, 0, err
	}
	columns, err := r.size(1, "columns", maxRows)
	if err != nil {
		return 0, 0, err
	}
	if rows != columns || rows == 0 {
		return 0, 0, r.fail("%d rows and %d columns: must be as many, and not 0", rows, columns)
	}
	if count, err = r.size(2, "numbers", math.MaxInt/4); err != nil {
		return 0, 0, err
	}
	// Every row of a matrix that can be solved with has a number at least. So the memory that is taken
	// follows from the lines of the file, and not from what the file claims.
	if count < (rows+1)/2 {
		return 0, 0, r.fail("%d numbers in %d rows: the matrix is singular", count, rows)
	}
	return rows, count, nil
}

// entry reads a line with a row, a column, and the number, if it is not a pattern.
func (r *reader) entry(rows int, pattern bool, what string) (entry, error) {
	if err := r.next(what); err != nil {
		return entry{}, err
	}
	fields := 3
	if pattern {
		fields = 2
	}
	if len(r.fields) != fields {
		return entry{}, r.fail("%d fields; a row, a column and the number are %d", len(r.fields), fields)
	}
	e := entry{value: 1}
	var err error
	if e.row, err = r.index(0, "row", rows); err != nil {
		return entry{}, err
	}
	if e.column, err = r.index(1, "column", rows); err != nil || pattern {
		return e, err
	}
	e.value, err = r.value(2)
	return e, err
}

// parseVector reads a matrix of one column in array format.
func parseVector(file io.Reader) ([]float64, error) {
	r := newReader(file)
	words, err := r.header()
	if err != nil {
		return nil, err
	}
	if words[0] != "array" || words[1] != "real" && words[1] != "integer" && words[1] != "double" ||
		words[2] != "general" {
		return nil, r.fail("a matrix in format %.60q; a vector is in \"array real general\"",
			strings.Join(words, " "))
	}
	if err := r.next("the sizes"); err != nil {
		return nil, err
	}
	if len(r.fields) != 2 || r.fields[1] != "1" {
		return nil, r.fail("%.60q: the sizes of a vector are its rows, and 1", strings.Join(r.fields, " "))
	}
	rows, err := r.size(0, "rows", maxRows)
	if err != nil {
		return nil, err
	}
	v := make([]float64, 0, min(rows, ahead))
	all := fmt.Sprintf("all its %d numbers", rows)
	for range rows {
		if err := r.next(all); err != nil {
			return nil, err
		}
		if len(r.fields) != 1 {
			return nil, r.fail("%d fields; a vector has one number a line", len(r.fields))
		}
		x, err := r.value(0)
		if err != nil {
			return nil, err
		}
		v = append(v, x)
	}
	return v, r.end(rows)
}

// appendHeader begins a vector for parseVector, and appendNumbers goes on with some of its numbers.
func appendHeader(b []byte, rows int) []byte {
	return fmt.Appendf(b, "%%%%MatrixMarket matrix array real general\n%d 1\n", rows)
}

func appendNumbers(b []byte, v []float64) []byte {
	for _, x := range v {
		b = fmt.Appendf(b, "%.17g\n", x)
	}
	return b
}
