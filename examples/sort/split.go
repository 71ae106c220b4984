package main

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/weft-mpi/weft/mpi"
)

// sample is a line, without its newline, and its place: the rank that has it, and its index among the rank's
// sorted lines. The places make every sample different from all others, so a line that is in the file a
// million times is cut into parts like any million lines.
type sample struct {
	Line        string
	Rank, Index int
}

func (s sample) compare(t sample) int {
	return cmp.Or(strings.Compare(s.Line, t.Line), cmp.Compare(s.Rank, t.Rank), cmp.Compare(s.Index, t.Index))
}

// split returns where the rank's sorted lines are cut: those from cuts[i] to before cuts[i+1] go to rank i.
//
// Each rank gives as many samples as there are ranks, at equal distances, and the splitters are taken from
// the sorted samples at equal distances, too. Then no rank gets more than twice its share of the lines, where
// all ranks have equally many (Shi and Schaeffer, "Parallel sorting by regular sampling", 1992).
func split(world *mpi.Comm, mine part) ([]int, error) {
	ranks := world.Size()
	at := func(index int) sample {
		line := mine.lines[index]
		return sample{string(line[:len(line)-1]), world.Rank(), index}
	}
	var samples []sample
	for i := range ranks {
		index := i * len(mine.lines) / ranks
		if index == len(mine.lines) || i > 0 && index == samples[len(samples)-1].Index {
			continue // fewer lines than ranks
		}
		samples = append(samples, at(index))
	}
	all, err := mpi.AllgatherValues(world, samples)
	if err != nil {
		return nil, err
	}
	sorted := slices.Concat(all...)
	slices.SortFunc(sorted, sample.compare)

	cuts := make([]int, ranks+1)
	cuts[ranks] = len(mine.lines)
	for i := 1; i < ranks && len(sorted) > 0; i++ {
		splitter := sorted[i*len(sorted)/ranks]
		cuts[i] = sort.Search(len(mine.lines), func(index int) bool {
			return at(index).compare(splitter) >= 0
		})
	}
	return cuts, nil
}
