package bench

import (
	"math"

	"github.com/weft-mpi/weft/mpi"
)

// overlapped measures how much of a message's transfer overlaps its receiver's computation. Rank 0 begins a
// receive, computes without a call for as long as the message alone takes, and waits: a message that is
// transferred meanwhile costs nothing more.
func overlapped(s *session, n int) (measurement, error) {
	baseline, err := s.received(n, 0)
	if err != nil {
		return measurement{}, err
	}
	rounds, took := s.calibrated(baseline)
	overall, err := s.received(n, rounds)
	if err != nil {
		return measurement{}, err
	}
	tails := s.tails(func(seconds float64) float64 { return seconds * 1e6 })
	share := 0.0
	if baseline > 0 {
		share = 100 * min(1, max(0, 1-(overall-took)/baseline))
	}
	return measurement{value: overall * 1e6, compute: took * 1e6, baseline: baseline * 1e6, overlap: share,
		tails: tails}, nil
}

// received returns the mean time in seconds that rank 0 takes for a message of rank 1 with a number of rounds
// of computation.
func (s *session) received(n, rounds int) (float64, error) {
	timed, warmup := s.iterations(n)
	var sum float64
	watch := s.stopwatch()
	for i := range timed + warmup {
		if i == warmup {
			watch.begin()
		}
		if s.refills() && s.world.Rank() == 1 {
			s.pattern(s.send[:n], 1, i)
		}
		if err := mpi.Barrier(s.world); err != nil {
			return 0, err
		}
		if s.world.Rank() != 0 {
			if err := mpi.Ssend(s.world, s.send[:n], 0, dataTag); err != nil {
				return 0, err
			}
			continue
		}
		start := s.now()
		r, err := mpi.Irecv(s.world, s.recv[:n], 1, dataTag)
		if err != nil {
			return 0, err
		}
		compute(rounds)
		if _, err := r.Wait(); err != nil {
			return 0, err
		}
		took := s.now() - start
		if i >= warmup {
			sum += took
			watch.took(took)
		}
		if s.Validate {
			s.compareMessage(s.recv[:n], 1, i)
		}
	}
	return sum / float64(timed), nil
}

// calibrated returns the number of rounds of computation that take about the given seconds, and their actual
// time.
func (s *session) calibrated(seconds float64) (rounds int, took float64) {
	const trial = 1 << 16
	start := s.now()
	compute(trial)
	rounds = int(seconds / (s.now() - start) * trial)
	took = math.Inf(1)
	for range 5 { // take the least, as others may interrupt
		start = s.now()
		compute(rounds)
		took = min(took, s.now()-start)
	}
	return rounds, took
}

// compute keeps the processor busy. It returns a result, and is not inlined, so that the compiler does not
// remove it.
//
//go:noinline
func compute(rounds int) float64 {
	x := 1.0
	for range rounds {
		x = math.FMA(x, 0.5, 0.25)
	}
	return x
}
