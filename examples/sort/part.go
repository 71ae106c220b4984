package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// part is the lines that a rank has. A line ends with a newline, which belongs to it, so that lines can be
// put together without their lengths.
type part struct {
	text  []byte
	lines [][]byte // of text
}

// newPart finds the lines of a text, which ends with a newline unless it is empty.
func newPart(text []byte) part {
	p := part{text: text, lines: make([][]byte, 0, bytes.Count(text, newline))}
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n') + 1
		p.lines = append(p.lines, text[:end:end])
		text = text[end:]
	}
	return p
}

var newline = []byte{'\n'}

// sorted returns the lines in order. The text stays as it is.
func (p part) sorted() part {
	lines := slices.Clone(p.lines)
	slices.SortFunc(lines, compare)
	return part{p.text, lines}
}

// compare orders lines without their newline: a line comes before those that begin with it.
func compare(a, b []byte) int { return bytes.Compare(a[:len(a)-1], b[:len(b)-1]) }

// makePart makes the rank's part of a number of lines: numbers, in no order.
func makePart(rank, ranks int, lines int64) part {
	numbers := rand.New(rand.NewPCG(1, uint64(rank)))
	var text []byte
	for range share(lines, rank+1, ranks) - share(lines, rank, ranks) {
		text = append(strconv.AppendUint(text, numbers.Uint64N(1e9), 10), '\n')
	}
	return newPart(text)
}

// readPart reads the rank's part of a file: the lines that begin within its share of the bytes.
func readPart(world *mpi.Comm, name string) (part, error) {
	f, err := file.Open(world, name, os.O_RDONLY, 0)
	if err != nil {
		return part{}, err
	}
	size, err := f.Size()
	if err != nil {
		return part{}, fmt.Errorf("rank %d: %w", world.Rank(), err)
	}
	// All ranks must cut the same file: rank 0 says how long it is, in case it grows meanwhile.
	if size, err = mpi.BcastValue(world, size, 0); err != nil {
		return part{}, err
	}
	text, err := readLines(f, size, world.Rank(), world.Size())
	if err != nil {
		return part{}, fmt.Errorf("rank %d: %s: %w", world.Rank(), name, err)
	}
	return newPart(text), f.Close()
}

// readLines reads the lines that begin in the rank's share of a file of size bytes. If the file's last line
// has no newline it gets one.
func readLines(f io.ReaderAt, size int64, rank, ranks int) ([]byte, error) {
	from, err := lineAt(f, size, share(size, rank, ranks))
	if err != nil {
		return nil, err
	}
	to, err := lineAt(f, size, share(size, rank+1, ranks))
	if err != nil {
		return nil, err
	}
	text := make([]byte, to-from, to-from+1)
	if n, err := f.ReadAt(text, from); n < len(text) {
		return nil, fmt.Errorf("%d bytes at offset %d instead of %d: %w", n, from, len(text), err)
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text, nil
}

// share returns where the rank's share of a number of bytes begins.
func share(size int64, rank, ranks int) int64 {
	whole, rest := size/int64(ranks), size%int64(ranks)
	return whole*int64(rank) + min(rest, int64(rank))
}

// lineAt is the offset of the first line that begins at an offset or after it, or size if there is none.
func lineAt(f io.ReaderAt, size, offset int64) (int64, error) {
	if offset == 0 {
		return 0, nil
	}
	buf := make([]byte, 4096)
	for at := offset - 1; at < size; { // a newline just before the offset makes it the start of a line
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return at + int64(i) + 1, nil
		}
		at += int64(n)
		if at < size && err != nil {
			return 0, fmt.Errorf("at offset %d: %w", at, err)
		}
	}
	return size, nil
}
