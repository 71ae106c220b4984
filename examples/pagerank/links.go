package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// A link leads from a page to another. Messages carry it as it is.
type link struct{ From, To uint32 }

const (
	maxPages = 1 << 26 // a rank has memory for its share of the pages up to the highest number
	maxLine  = 4096
)

// makeLinks makes the rank's part of the links of a web. Pages with low numbers are linked to most.
func makeLinks(rank, ranks int) []link {
	const pages, each = 2000, 5
	first, count := mpi.Part(pages, rank, ranks)
	var links []link
	for page := first; page < first+count; page++ {
		r := rand.New(rand.NewPCG(1, uint64(page)))
		for range r.IntN(2 * each) { // none for some
			links = append(links, link{uint32(page), uint32(r.IntN(1 + r.IntN(pages)))})
		}
	}
	return links
}

// readLinks reads the rank's part of a file: the lines that begin in its share of the bytes.
func readLinks(world *mpi.Comm, name string) ([]link, error) {
	f, err := file.Open(world, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	text, at, err := readLines(world, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	links, err := parseLinks(text)
	if err != nil {
		return nil, fmt.Errorf("%s: lines from byte %d on: %w", name, at, err)
	}
	return links, nil
}

// readLines reads the lines that begin in the rank's share of the file, and returns where the first begins.
func readLines(world *mpi.Comm, f *file.File) (text []byte, at int, err error) {
	size, err := f.Size()
	if err != nil {
		return nil, 0, err
	}
	first, count := mpi.Part(int(size), world.Rank(), world.Size())
	follows := first > 0 && count > 0
	if follows { // the byte before shows whether a line begins with the share
		first, count = first-1, count+1
	}
	text = make([]byte, count, count+maxLine)
	if _, err := file.ReadAll(f, file.Range(first, count), mpi.Whole(text)); err != nil {
		return nil, 0, err
	}
	if follows {
		begin := bytes.IndexByte(text, '\n') + 1
		if begin == 0 { // in the middle of a line
			return nil, first, nil
		}
		first, text = first+begin, text[begin:]
	}
	if len(text) == 0 || text[len(text)-1] == '\n' {
		return text, first, nil
	}
	// The last line ends in the share of another rank.
	rest := make([]byte, maxLine)
	n, err := f.ReadAt(rest, int64(first+len(text)))
	if err != nil && err != io.EOF {
		return nil, 0, err
	}
	end := bytes.IndexByte(rest[:n], '\n') + 1
	if end == 0 {
		if end = n; n == maxLine {
			return nil, 0, fmt.Errorf("%s: a line of more than %d bytes", f.Name(), maxLine)
		}
	}
	return append(text, rest[:end]...), first, nil
}

// parseLinks reads links, one a line.
func parseLinks(text []byte) ([]link, error) {
	var links []link
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		fields := bytes.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d: %d fields; a link is the numbers of two pages", number,
				len(fields))
		}
		var pages [2]uint32
		for i, field := range fields {
			page, err := strconv.ParseUint(string(field), 10, 32)
			if err != nil || page >= maxPages {
				return nil, fmt.Errorf("line %d: page %.40q: must be a number from 0 to %d", number, field,
					maxPages-1)
			}
			pages[i] = uint32(page)
		}
		links = append(links, link{pages[0], pages[1]})
	}
	return links, nil
}
