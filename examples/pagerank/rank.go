package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weft-mpi/weft/mpi"
)

// maxRounds is far above what the smallest tolerance takes, except with a damping close to 1.
const maxRounds = 10_000

// iterate repeats rounds until the pages change by less than the tolerance.
func (w *web) iterate(o options) (rounds int, err error) {
	for i := range w.importance {
		w.importance[i] = 1 / float64(w.pages)
	}
	next := make([]float64, len(w.importance))
	for rounds < maxRounds {
		rounds++
		if err := w.round(o.Damping, next); err != nil {
			return rounds, err
		}
		change := []float64{0}
		for i, v := range next {
			change[0] += math.Abs(v - w.importance[i])
		}
		w.importance, next = next, w.importance
		if err := mpi.Allreduce(w.world, mpi.InPlace[float64](), change, mpi.Sum[float64]()); err != nil {
			return rounds, err
		}
		if change[0] < o.Tolerance {
			return rounds, nil
		}
	}
	return rounds, fmt.Errorf("the pages still change after %d rounds: a -tolerance of %v is too small",
		maxRounds, o.Tolerance)
}

// round finds the next importance of the pages. A page gives each page that it links to an equal share of the
// damped part of its own, and a page without links gives to all.
func (w *web) round(damping float64, next []float64) error {
	idle := []float64{0}
	for i, v := range w.importance {
		if w.degree[i] == 0 {
			idle[0] += v
		}
	}
	if err := mpi.Allreduce(w.world, mpi.InPlace[float64](), idle, mpi.Sum[float64]()); err != nil {
		return err
	}
	clear(w.sums)
	sums := w.sums
	for _, t := range w.targets {
		for _, l := range t.links {
			sums[l.to] += w.importance[l.from] / float64(w.degree[l.from])
		}
		sums = sums[len(t.pages):]
	}
	err := mpi.ExchangeFunc(w.world, w.dests, w.counts, w.sums, func(src int, data []float64) {
		copy(w.sources[src].given, data)
	})
	if err != nil {
		return err
	}
	all := (1 - damping + damping*idle[0]) / float64(w.pages)
	for i := range next {
		next[i] = all
	}
	// Messages arrive in any order. Numbers that are added in the order of ranks give the same sum each time.
	for _, rank := range w.order {
		s := w.sources[rank]
		for i, page := range s.pages {
			next[page] += damping * s.given[i]
		}
	}
	return nil
}

// verify finds out whether the pages have all of the importance that there is.
func (w *web) verify() error {
	sum := []float64{0}
	for _, v := range w.importance {
		sum[0] += v
	}
	if err := mpi.Allreduce(w.world, mpi.InPlace[float64](), sum, mpi.Sum[float64]()); err != nil {
		return err
	}
	if math.Abs(sum[0]-1) > 1e-9 {
		return fmt.Errorf("the importance of all pages is %v together, not 1", sum[0])
	}
	return nil
}

// ranked is a page in the result.
type ranked struct {
	Page       int
	Importance float64
}

// first returns the most important pages, in order.
func first(pages []ranked, n int) []ranked {
	slices.SortFunc(pages, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.Importance, a.Importance), cmp.Compare(a.Page, b.Page))
	})
	return pages[:min(n, len(pages))]
}

// report prints the most important pages, which rank 0 finds among the first of each rank.
func (w *web) report(o options, rounds int) error {
	var mine []ranked
	for i, v := range w.importance {
		mine = append(mine, ranked{i*w.world.Size() + w.world.Rank(), v})
	}
	all, err := mpi.GatherValues(w.world, first(mine, o.Top), 0)
	if err != nil || w.world.Rank() != 0 {
		return err
	}
	fmt.Printf("%d pages and %d links ranked by %d ranks in %d rounds; the importance of all pages is 1\n",
		w.pages, w.links, w.world.Size(), rounds)
	for _, p := range first(slices.Concat(all...), o.Top) {
		fmt.Printf("page %-8d %.10f\n", p.Page, p.Importance)
	}
	return nil
}
