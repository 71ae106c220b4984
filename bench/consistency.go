package bench

import (
	"context"
	"errors"
	"io"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi"
)

// ErrInconsistent means that a collective takes longer than others that do its work.
var ErrInconsistent = errors.New("collectives are not consistent")

// Consistency measures, as one of the ranks of the job for which this process was started, whether
// collectives take no longer than other collectives that do the same work, and whether one more rank or one
// more element costs little. The guidelines are those of J. L. Träff, W. D. Gropp and R. Thakur,
// "Self-Consistent MPI Performance Guidelines", IEEE TPDS 21(5), 2010. Rank 0 prints a line for each. If one
// does not hold, Consistency returns ErrInconsistent there. Options are as in Tune; Table, All and
// Collectives are not used.
func Consistency(ctx context.Context, o TuneOptions, by Invocation, out io.Writer) error {
	return withTuner(ctx, o, by, out, (*tuner).consistency)
}

// A guideline is that some consecutive calls on a communicator take at most maxRatio times as long as others.
type guideline struct {
	what        string
	bytes       int
	left, right []timedCall
	maxRatio    float64
}

// timedCall is a call on a communicator, nil at a rank that is not in it.
type timedCall struct {
	on   *mpi.Comm
	call func() error
}

// Limits of the guidelines, with room for the spread of figures.
const (
	sameWork = 1.0
	allowed  = 1.1 // of an Allreduce
	oneMore  = 1.5 // rank, or element
)

// growing are the collectives for which one more rank or element must cost little. In those with blocks, each
// rank receives a block from every other.
var growing = []struct {
	tuned
	blocks bool
}{
	{tuned{"Bcast", broadcast, true}, false}, {tuned{"Allreduce", allreduce, true}, false},
	{tuned{"Allgather", allgather, true}, true}, {tuned{"Alltoall", alltoall, true}, true},
}

// consistency checks the guidelines on communicators of all numbers of ranks.
func (t *tuner) consistency() error {
	if err := t.session.warmUpRanks(); err != nil {
		return err
	}
	t.out.printf("\n# weft consistency, %d ranks, fabric %s\n# %-44s%7s%10s%12s%12s%8s%8s\n", t.world.Size(),
		t.fabric, "at most as long", "ranks", "bytes", "us", "us", "ratio", "limit")
	const calls = 20 // calls of the guidelines of a size
	t.slice = t.Limit.Seconds() / float64(calls*len(t.Ranks)*len(t.sizes(&growing[0].tuned)))
	broken := 0
	for _, n := range t.Ranks {
		some, err := t.first(n)
		if err != nil {
			return err
		}
		more, err := t.first(n + 1)
		if err != nil {
			return err
		}
		if some != nil {
			if err := t.examine(some, n, t.within(some), &broken); err != nil {
				return err
			}
		}
		if more != nil && more.Size() > n {
			if err := t.examine(more, n, t.growth(some, more), &broken); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(t.world); err != nil {
			return err
		}
	}
	switch {
	case t.world.Rank() != 0:
		return nil
	case t.out.err == nil && broken > 0:
		return ErrInconsistent
	}
	return t.out.err
}

// first returns a communicator of the first n ranks; nil at the others.
func (t *tuner) first(n int) (*mpi.Comm, error) {
	color := 0
	if t.world.Rank() >= n {
		color = mpi.Undefined
	}
	return t.world.Split(color, 0)
}

// busier returns the factor by which the number of ranks of the busiest processor grows if one rank is added
// to n: for the same work, each of them takes that much longer in any collective.
func busier(n int) float64 {
	processors := topology.Possible()
	busiest := func(ranks int) float64 { return float64((ranks + processors - 1) / processors) }
	return busiest(n+1) / busiest(n)
}

// on returns a call of a collective on a communicator.
func (t *tuner) on(c *mpi.Comm, of func(*session, int) operation, bytes int) timedCall {
	if c == nil {
		return timedCall{}
	}
	s := *t.session
	s.world = c
	return timedCall{c, of(&s, bytes).call}
}

// within returns the guidelines on one communicator.
func (t *tuner) within(some *mpi.Comm) (list []guideline) {
	barrier := timedCall{some, func() error { return mpi.Barrier(some) }}
	list = append(list, guideline{"Barrier, Allreduce of 8 bytes", 8, []timedCall{barrier},
		[]timedCall{t.on(some, allreduce, 8)}, sameWork})
	for _, n := range t.sizes(&growing[0].tuned) {
		list = append(list, guideline{"Allreduce, Reduce and Bcast", n, []timedCall{t.on(some, allreduce, n)},
			[]timedCall{t.on(some, reduce, n), t.on(some, broadcast, n)}, allowed})
		if all := n * some.Size(); all <= t.Max {
			list = append(list, guideline{"Allgather, Gather and Bcast of all", n,
				[]timedCall{t.on(some, allgather, n)},
				[]timedCall{t.on(some, gather, n), t.on(some, broadcast, all)}, sameWork})
		}
		for _, c := range growing {
			list = append(list, guideline{c.name + ", one element less", n, []timedCall{t.on(some, c.of, n)},
				[]timedCall{t.on(some, c.of, n-4)}, oneMore})
		}
	}
	return list
}

// growth returns the guidelines on a communicator and one with one more rank.
func (t *tuner) growth(some, more *mpi.Comm) (list []guideline) {
	ranks := more.Size() - 1
	limit := oneMore * busier(ranks)
	for _, n := range t.sizes(&growing[0].tuned) {
		for _, c := range growing {
			limit := limit
			if c.blocks { // one more block
				limit *= float64(ranks) / float64(ranks-1)
			}
			list = append(list, guideline{c.name + " of one rank more, and without it", n,
				[]timedCall{t.on(more, c.of, n)}, []timedCall{t.on(some, c.of, n)}, limit})
		}
	}
	return list
}

// examine measures guidelines, and counts those that do not hold. All ranks of a communicator call it
// together.
func (t *tuner) examine(all *mpi.Comm, ranks int, list []guideline, broken *int) error {
	for i := range list {
		g := &list[i]
		w, err := t.weigh(all, g, tuneRounds)
		if err == nil && !w.holds(g.maxRatio) { // measure again, as this may be chance
			w, err = t.weigh(all, g, confirmRounds)
		}
		if err != nil {
			return err
		}
		verdict := ""
		if !w.holds(g.maxRatio) {
			verdict = "  does not hold"
			*broken++
		}
		t.out.printf("%-46s%7d%10d%12.2f%12.2f%8.2f%8.2f%s\n", g.what, ranks, g.bytes, w.left, w.right,
			w.left/w.right, g.maxRatio, verdict)
	}
	return nil
}

// weight is the time of the two sides of a guideline, and of the Barriers that were subtracted from each, in
// µs.
type weight struct{ left, right, barrier float64 }

// holds reports whether the left side takes at most maxRatio times as long as the right. A twentieth of a
// Barrier allows for the spread of the subtracted Barriers.
func (w weight) holds(maxRatio float64) bool { return w.left <= maxRatio*w.right+w.barrier/20 }

// weigh measures the two sides of a guideline, which take turns. The result is the same at all ranks.
func (t *tuner) weigh(all *mpi.Comm, g *guideline, rounds int) (w weight, err error) {
	var times [2][]float64
	var barriers []float64
	for range rounds {
		for i, side := range [][]timedCall{g.left, g.right} {
			if some := side[0].on; some != nil {
				took, barrier, err := t.toTheEnd(some, side, t.slice/tuneRounds)
				if err != nil {
					return w, err
				}
				times[i] = append(times[i], took)
				barriers = append(barriers, barrier)
			}
			if err := mpi.Barrier(all); err != nil {
				return w, err
			}
		}
	}
	medians := []float64{median(times[0]), median(times[1]), median(barriers)}
	err = mpi.Bcast(all, medians, 0)
	return weight{medians[0], medians[1], medians[2]}, err
}

// toTheEnd returns how long consecutive calls on a communicator take until the last rank has ended the last
// of them: by how much they lengthen a loop of Barriers. A rank's time in a call does not show that: a Reduce
// is over at once at leaves, and a Bcast at its root.
func (t *tuner) toTheEnd(some *mpi.Comm, calls []timedCall, seconds float64) (took, barrier float64,
	err error) {
	loop := func(calls []timedCall, times int) (float64, error) {
		began := t.session.now()
		for range times {
			for _, c := range calls {
				if err := c.call(); err != nil {
					return 0, err
				}
			}
			if err := mpi.Barrier(some); err != nil {
				return 0, err
			}
		}
		return (t.session.now() - began) * 1e6 / float64(times), nil
	}
	first, err := loop(calls, 2)
	if err != nil {
		return 0, 0, err
	}
	n, err := callsWithin(some, seconds, first/1e6, 1000)
	if err != nil {
		return 0, 0, err
	}
	both, err := loop(calls, n)
	if err != nil {
		return 0, 0, err
	}
	barrier, err = loop(nil, n)
	return both - barrier, barrier, err
}
