package main

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/weft-mpi/weft/mpi"
)

// web is a rank's part of the pages, and the links from them. Page p is page p/size of rank p%size, as pages
// with neighboring numbers often have as many links.
type web struct {
	world *mpi.Comm
	pages int // of all ranks
	links int // of all ranks

	importance []float64 // of the rank's pages
	degree     []int32   // the number of links of each
	targets    []target  // ascending by rank
	sums       []float64 // to send: one for each of all targets' pages, by rank
	dests      []int     // the ranks of targets
	counts     []int     // of their pages
	sources    map[int]*source
	order      []int // the ranks of sources, ascending
}

// target is another rank's pages that pages of this rank link to.
type target struct {
	links []localLink
	pages []uint32 // their numbers at the target; each once
}

// localLink leads from a page of this rank to the index of a page among the target's.
type localLink struct{ from, to int32 }

// source is this rank's pages that pages of another rank link to, and what these have given them.
type source struct {
	pages []uint32 // by number at this rank
	given []float64
}

// newWeb brings links to the ranks of the pages from which they lead.
func newWeb(world *mpi.Comm, read []link) (*web, error) {
	size := world.Size()
	out, highest := map[int][]link{}, -1
	for _, l := range read {
		rank := int(l.From) % size
		out[rank] = append(out[rank], l)
		highest = max(highest, int(l.From), int(l.To))
	}
	totals := []int{highest}
	if err := mpi.Allreduce(world, mpi.InPlace[int](), totals, mpi.Max[int]()); err != nil {
		return nil, err
	}
	w := &web{world: world, pages: totals[0] + 1, sources: map[int]*source{}}
	if w.pages == 0 {
		return nil, errors.New("no links")
	}
	totals[0] = len(read)
	if err := mpi.Allreduce(world, mpi.InPlace[int](), totals, mpi.Sum[int]()); err != nil {
		return nil, err
	}
	w.links = totals[0]
	_, mine := mpi.Part(w.pages, world.Rank(), size)
	w.importance, w.degree = make([]float64, mine), make([]int32, mine)
	came, err := mpi.Exchange(world, out)
	if err != nil {
		return nil, err
	}
	return w, w.connect(came)
}

// connect tells the ranks to which links lead what they will get in each round.
func (w *web) connect(came map[int][]link) error {
	size := w.world.Size()
	byTarget := map[int][]link{}
	for _, rank := range slices.Sorted(maps.Keys(came)) {
		for _, l := range came[rank] {
			w.degree[int(l.From)/size]++
			byTarget[int(l.To)%size] = append(byTarget[int(l.To)%size], l)
		}
	}
	pages := map[int][]uint32{}
	for _, rank := range slices.Sorted(maps.Keys(byTarget)) {
		var t target
		links := byTarget[rank]
		slices.SortFunc(links, func(a, b link) int {
			return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From))
		})
		for i, l := range links {
			if i == 0 || l.To != links[i-1].To {
				t.pages = append(t.pages, l.To/uint32(size))
			}
			t.links = append(t.links, localLink{int32(int(l.From) / size), int32(len(t.pages) - 1)})
		}
		w.targets, pages[rank] = append(w.targets, t), t.pages
		w.dests, w.counts = append(w.dests, rank), append(w.counts, len(t.pages))
		w.sums = append(w.sums, make([]float64, len(t.pages))...)
	}
	sources, err := mpi.Exchange(w.world, pages)
	for rank, pages := range sources {
		w.sources[rank] = &source{pages, make([]float64, len(pages))}
		w.order = append(w.order, rank)
	}
	slices.Sort(w.order)
	return err
}
