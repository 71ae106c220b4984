package bench

import "github.com/weft-mpi/weft/mpi"

// operation is a collective on buffers of one size.
type operation struct {
	fill    func(i int) // writes what call i sends
	call    func() error
	start   func() (mpi.Request, error) // the non-blocking form of call
	compare func(i int)                 // checks what call i has received
}

// blocking measures the calls of a collective.
func blocking(of func(s *session, n int) operation) func(*session, int) (cell, error) {
	return func(s *session, n int) (cell, error) {
		o := of(s, n)
		return s.each(n, o.fill, o.call, o.compare)
	}
}

// nonBlocking measures how much of a collective overlaps with computation: each rank starts it, computes for
// as long as the collective takes by itself, and waits.
func nonBlocking(of func(s *session, n int) operation) func(*session, int) (cell, error) {
	return func(s *session, n int) (cell, error) { return s.overlaps(n, of(s, n)) }
}

func (s *session) overlaps(n int, o operation) (cell, error) {
	computing := func(rounds int) func() error {
		return func() error {
			r, err := o.start()
			if err != nil {
				return err
			}
			compute(rounds)
			_, err = r.Wait()
			return err
		}
	}
	baseline, err := s.each(n, o.fill, computing(0), o.compare)
	if err != nil {
		return cell{}, err
	}
	rounds, took := s.calibrated(baseline.value / 1e6)
	work, err := s.spread(took * 1e6)
	if err != nil {
		return cell{}, err
	}
	c, err := s.each(n, o.fill, computing(rounds), o.compare)
	if err != nil {
		return cell{}, err
	}
	c.compute, c.baseline = work.value, baseline.value
	if c.baseline > 0 {
		c.overlap = 100 * min(1, max(0, 1-(c.value-c.compute)/c.baseline))
	}
	return c, nil
}

// each times the call alone, with a barrier between two calls, and gives average, minimum and maximum over
// the ranks' means. What validation does before a call and after it is not timed.
func (s *session) each(n int, before func(i int), call func() error, after func(i int)) (cell, error) {
	timed, warmup := s.iterations(n)
	var sum float64
	watch := s.stopwatch()
	for i := range timed + warmup {
		if i == warmup {
			watch.begin()
		}
		if s.refills() {
			before(i)
			if err := mpi.Barrier(s.world); err != nil {
				return cell{}, err
			}
		}
		start := s.now()
		if err := call(); err != nil {
			return cell{}, err
		}
		took := s.now() - start
		if i >= warmup {
			sum += took
			watch.took(took)
		}
		if s.Validate {
			after(i)
		}
		if err := mpi.Barrier(s.world); err != nil {
			return cell{}, err
		}
	}
	c, err := s.spread(sum * 1e6 / float64(timed))
	if err != nil {
		return cell{}, err
	}
	if err := s.merge(); err != nil {
		return cell{}, err
	}
	c.tails = s.tails(func(seconds float64) float64 { return seconds * 1e6 })
	return c, nil
}

// spread is average, minimum and maximum of a figure over the ranks.
func (s *session) spread(mine float64) (cell, error) {
	total, extremes := []float64{mine}, []float64{mine, -mine}
	if err := mpi.Allreduce(s.world, mpi.InPlace[float64](), total, mpi.Sum[float64]()); err != nil {
		return cell{}, err
	}
	if err := mpi.Allreduce(s.world, mpi.InPlace[float64](), extremes, mpi.Max[float64]()); err != nil {
		return cell{}, err
	}
	return cell{value: total[0] / float64(s.world.Size()), min: -extremes[1], max: extremes[0]}, nil
}

func barrier(s *session) error {
	s.heading()
	c, err := s.each(0, nil, func() error { return mpi.Barrier(s.world) }, nil)
	if err != nil {
		return err
	}
	return s.onlyRow(&c)
}

func barrierOverlap(s *session) error {
	s.heading()
	c, err := s.overlaps(0, operation{start: func() (mpi.Request, error) { return mpi.Ibarrier(s.world) }})
	if err != nil {
		return err
	}
	return s.onlyRow(&c)
}

// onlyRow prints the row of a table without sizes.
func (s *session) onlyRow(c *cell) error {
	c.iterations, _ = s.iterations(0)
	s.row(row(s.kind.columns, c))
	return s.out.err
}
