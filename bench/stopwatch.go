package bench

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weft-mpi/weft/mpi"
)

// stopwatch times the iterations of one size. Without tails it reads the clock only at the beginning and at
// the end, so measured loops call nothing else.
type stopwatch struct {
	now   func() float64 // in seconds
	times *hdrhistogram.Histogram
	start float64
	lap   float64 // when the current iteration began
}

// percentiles are the percentiles of a table's tails.
var percentiles = [...]float64{50, 90, 99, 99.9, 100}

// Times of iterations are counted in nanoseconds, to three digits; longer times count as longest.
const (
	longest     = 1e12
	exactDigits = 3
)

// stopwatch returns a stopwatch for the next size, which keeps the times of single iterations with tails.
func (s *session) stopwatch() *stopwatch {
	if s.Tails && s.times == nil {
		s.times = hdrhistogram.New(1, longest, exactDigits)
	}
	return &stopwatch{now: s.now, times: s.times}
}

// ownStopwatch returns a stopwatch for one of several goroutines that measure concurrently.
func (s *session) ownStopwatch() *stopwatch {
	w := *s.stopwatch()
	if s.Tails {
		w.times = hdrhistogram.New(1, longest, exactDigits)
	}
	return &w
}

// begin starts the clock and discards the times of the warm-up.
func (w *stopwatch) begin() {
	if w.times != nil {
		w.times.Reset()
	}
	w.start = w.now()
	w.lap = w.start
}

// split ends an iteration. The next one begins at once and includes the bookkeeping, so that one reading of
// the clock is enough.
func (w *stopwatch) split() {
	if w.times != nil {
		w.turn()
	}
}

// turn is separate so that split is inlined.
func (w *stopwatch) turn() {
	now := w.now()
	w.took(now - w.lap)
	w.lap = now
}

// took records the time of an iteration, in seconds.
func (w *stopwatch) took(seconds float64) {
	if w.times != nil {
		// A time within the bounds cannot be refused.
		_ = w.times.RecordValue(int64(min(longest, max(0, seconds*1e9+0.5))))
	}
}

// pause calls a function with the clock stopped.
func (w *stopwatch) pause(something func() error) error {
	began := w.now()
	err := something()
	stopped := w.now() - began
	w.start += stopped
	w.lap += stopped
	return err
}

// elapsed returns the time since the beginning, in seconds.
func (w *stopwatch) elapsed() float64 { return w.now() - w.start }

// merge collects the times of all ranks at rank 0.
func (s *session) merge() error {
	if !s.Tails {
		return nil
	}
	all := s.times.Export()
	mine := all.Counts
	all.Counts = make([]int64, len(mine))
	if err := mpi.Reduce(s.world, mine, all.Counts, mpi.Sum[int64](), 0); err != nil {
		return fmt.Errorf("bringing the ranks' times together: %w", err)
	}
	if s.world.Rank() == 0 {
		s.times = hdrhistogram.Import(all)
	}
	return nil
}

// tails returns the percentiles of the iterations' times, each converted from seconds into a figure of the
// table.
func (s *session) tails(figure func(seconds float64) float64) (tails [len(percentiles)]float64) {
	if s.Tails {
		for i, p := range percentiles {
			tails[i] = figure(float64(s.times.ValueAtQuantile(p)) / 1e9)
		}
	}
	return tails
}
