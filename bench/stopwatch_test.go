package bench

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Tails are the times of the rounds, to three digits, whatever is done in between with the clock stopped; and
// so is the sum of all.
func TestTailsAreThoseOfTheRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := 0.0
		s := &session{Options: Options{Tails: true},
			instruments: instruments{now: func() float64 { return clock }}}
		w := s.stopwatch()
		w.split() // of warming up
		w.begin()
		rounds := rapid.SliceOfN(rapid.Float64Range(1e-9, 100), 1, 200).Draw(t, "rounds")
		sum := 0.0
		for _, took := range rounds {
			if rapid.Bool().Draw(t, "pause") {
				require.EqualError(t, w.pause(func() error { clock += 7; return errors.New("told") }), "told")
			}
			clock += took
			w.split()
			sum += took
		}
		require.InDelta(t, sum, w.elapsed(), 1e-6)
		slices.Sort(rounds)
		for i, got := range s.tails(func(seconds float64) float64 { return seconds }) {
			rank := int(math.Max(1, math.Min(float64(len(rounds)),
				percentiles[i]/100*float64(len(rounds))+0.5)))
			require.InDelta(t, rounds[rank-1], got, max(1e-9, 2e-3*got), "percentile %v of %v",
				percentiles[i], rounds)
		}
	})
}

// A round that takes longer than can be counted counts as the longest that can, and one before which the
// clock was set back as none.
func TestTailsOfImpossibleRounds(t *testing.T) {
	clock := 0.0
	s := &session{Options: Options{Tails: true},
		instruments: instruments{now: func() float64 { return clock }}}
	w := s.stopwatch()
	w.begin()
	for _, at := range []float64{1e9, 5, math.Inf(1)} {
		clock = at
		w.split()
	}
	tails := s.tails(func(seconds float64) float64 { return seconds })
	require.InEpsilon(t, longest/1e9, tails[len(tails)-1], 1e-3)
}

// Without tails a round costs no reading of the clock.
func TestRoundsWithoutTailsReadNoClock(t *testing.T) {
	reads := 0
	s := &session{instruments: instruments{now: func() float64 { reads++; return 0 }}}
	w := s.stopwatch()
	w.begin()
	for range 100 {
		w.split()
	}
	w.elapsed()
	require.Equal(t, 2, reads)
	require.Zero(t, s.tails(func(float64) float64 { return 1 }))
}
