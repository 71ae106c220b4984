package bench

import (
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
)

// each times the call alone, with a barrier between two calls, and gives average, minimum and maximum over the ranks' means. What
// validation does before a call and after it is not timed.
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
	c.iterations, _ = s.iterations(0)
	s.row(row(s.kind.columns, &c))
	return nil
}

func broadcast(s *session, n int) (cell, error) {
	const root = 0
	buf := s.send[:n]
	fill := func(i int) {
		if s.world.Rank() == root {
			s.pattern(buf, root, i)
		}
	}
	compare := func(i int) {
		if s.world.Rank() != root {
			s.compareMessage(buf, root, i)
		}
	}
	return s.each(n, fill, func() error { return mpi.Bcast(s.world, buf, root) }, compare)
}

// allAtRoot is the room for a message of every rank, at the rank that gathers them: rank 0.
func allAtRoot(_ Options, rank, ranks int) int {
	if rank == 0 {
		return ranks
	}
	return 0
}

func gather(s *session, n int) (cell, error) {
	const root = 0
	messages := allAtRoot(s.Options, s.world.Rank(), s.world.Size())
	in, out := s.send[:n], s.recv[:n*messages]
	return s.each(n,
		func(i int) { s.pattern(in, s.world.Rank(), i) },
		func() error { return mpi.Gather(s.world, in, out, root) },
		func(i int) {
			for r := range messages {
				s.compareMessage(out[r*n:][:n], r, i)
			}
		})
}

func reduce(s *session, n int) (cell, error) {
	const root = 0
	in, out, op := floats(s.send[:n]), floats(s.recv[:n]), mpi.Sum[float32]()
	compare := func(i int) {
		if s.world.Rank() == root {
			s.compareSum(out, i)
		}
	}
	return s.each(n,
		func(i int) { s.fillFloats(in, i) },
		func() error { return mpi.Reduce(s.world, in, out, op, root) },
		compare)
}

func allreduce(s *session, n int) (cell, error) {
	in, out, op := floats(s.send[:n]), floats(s.recv[:n]), mpi.Sum[float32]()
	return s.each(n,
		func(i int) { s.fillFloats(in, i) },
		func() error { return mpi.Allreduce(s.world, in, out, op) },
		func(i int) { s.compareSum(out, i) })
}

// floats are the floats in b, whose beginning is a page's.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
