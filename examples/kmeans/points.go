package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// points are in a space of some dimensions: the coordinates of one point after those of another.
type points struct {
	dimensions int
	at         []float64
}

func (p points) count() int            { return len(p.at) / p.dimensions }
func (p points) point(i int) []float64 { return p.at[i*p.dimensions:][:p.dimensions] }

// distance is the square of the distance between two points.
func distance(a, b []float64) float64 {
	sum := 0.0
	for i, x := range a {
		d := x - b[i]
		sum += d * d
	}
	return sum
}

// nearest finds the center that is nearest to a point; of several the first.
func (p points) nearest(point []float64) (index int, squared float64) {
	squared = math.Inf(1)
	for k := range p.count() {
		if d := distance(point, p.point(k)); d < squared {
			index, squared = k, d
		}
	}
	return index, squared
}

// scattered makes points around k places, the same for the same seed.
func scattered(p problem, seed uint64) points {
	random := rand.New(rand.NewPCG(seed, 0))
	places := points{p.Dimensions, make([]float64, p.K*p.Dimensions)}
	for i := range places.at {
		places.at[i] = 10 * random.Float64()
	}
	all := points{p.Dimensions, make([]float64, p.Points*p.Dimensions)}
	for i := range p.Points {
		place, point := places.point(random.IntN(p.K)), all.point(i)
		for d := range point {
			point[d] = place[d] + random.NormFloat64()/2
		}
	}
	return all
}

// load reads points from a CSV file.
func load(name string) (points, error) {
	f, err := os.Open(name)
	if err != nil {
		return points{}, err
	}
	defer f.Close()
	p, err := parse(f)
	if err != nil {
		return points{}, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// largest is the largest coordinate: the square of a distance is still finite.
const largest = 1e100

// parse reads points as comma-separated values, one point a line. The first line may be a header: none of its
// fields is a number.
func parse(r io.Reader) (points, error) {
	var p points
	records := csv.NewReader(r)
	records.ReuseRecord, records.TrimLeadingSpace, records.Comment = true, true, '#'
	for first := true; ; first = false {
		record, err := records.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return points{}, err // names the line
		}
		if first {
			p.dimensions = len(record)
			if header(record) {
				continue
			}
		}
		for i, field := range record {
			x, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
			if err != nil || !(math.Abs(x) <= largest) { // not a number, too
				line, column := records.FieldPos(i)
				return points{}, fmt.Errorf("line %d, column %d: %.40q is not a number from %g to %g", line,
					column, field, -largest, largest)
			}
			p.at = append(p.at, x)
		}
	}
	if len(p.at) == 0 {
		return points{}, errors.New("no points: a point is a line of numbers with commas in between")
	}
	return p, nil
}

// header reports whether no field is a number.
func header(record []string) bool {
	for _, field := range record {
		if _, err := strconv.ParseFloat(strings.TrimSpace(field), 64); err == nil {
			return false
		}
	}
	return true
}
