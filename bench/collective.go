package bench

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
)

// each times the call alone, with a barrier between two calls, and gives average, minimum and maximum over the ranks' means.
func (s *session) each(n int, call func(i int) error) (cell, error) {
	timed, warmup := s.iterations(n)
	var sum time.Duration
	for i := range timed + warmup {
		start := time.Now()
		if err := call(i); err != nil {
			return cell{}, err
		}
		if i >= warmup {
			sum += time.Since(start)
		}
		if err := mpi.Barrier(s.world); err != nil {
			return cell{}, err
		}
	}
	mean := float64(sum.Nanoseconds()) / 1e3 / float64(timed)
	return s.spread(mean)
}

// spread gives rank 0 the average, minimum and maximum of a figure over the ranks.
func (s *session) spread(mine float64) (cell, error) {
	total, low, high := []float64{mine}, []float64{mine}, []float64{mine}
	for _, x := range []struct {
		v  []float64
		op mpi.Op[float64]
	}{{total, mpi.Sum[float64]()}, {low, mpi.Min[float64]()}, {high, mpi.Max[float64]()}} {
		if err := mpi.Allreduce(s.world, mpi.InPlace[float64](), x.v, x.op); err != nil {
			return cell{}, err
		}
	}
	return cell{total[0] / float64(s.world.Size()), low[0], high[0]}, nil
}

func barrier(s *session) error {
	s.heading()
	c, err := s.each(0, func(int) error { return mpi.Barrier(s.world) })
	if err != nil {
		return err
	}
	timed, _ := s.iterations(0)
	fmt.Fprintf(s.out, "%17.*f", s.Digits, c.value)
	s.rest(c, timed, true)
	return nil
}

func broadcast(s *session, n int) (cell, error) {
	buf := s.send[:n]
	return s.each(n, func(i int) error {
		if s.world.Rank() == 0 {
			s.fill(buf, 0, i)
		} else if s.Validate {
			clear(buf)
		}
		err := mpi.Bcast(s.world, buf, 0)
		s.compare(buf, 0, i)
		return err
	})
}

func gather(s *session, n int) (cell, error) {
	in, out := s.send[:n], []byte(nil)
	if s.world.Rank() == 0 {
		out = s.recv[:n*s.world.Size()]
	}
	return s.each(n, func(i int) error {
		s.fill(in, s.world.Rank(), i)
		err := mpi.Gather(s.world, in, out, 0)
		for r := 0; len(out) > 0 && r < s.world.Size(); r++ {
			s.compare(out[r*n:][:n], r, i)
		}
		return err
	})
}

func reduce(s *session, n int) (cell, error) {
	in, out := floats(s.send[:n]), floats(s.recv[:n])
	return s.each(n, func(i int) error {
		s.fillFloats(in, i)
		err := mpi.Reduce(s.world, in, out, mpi.Sum[float32](), 0)
		if s.world.Rank() == 0 {
			s.compareSum(out, i)
		}
		return err
	})
}

func allreduce(s *session, n int) (cell, error) {
	in, out := floats(s.send[:n]), floats(s.recv[:n])
	op := mpi.Sum[float32]()
	return s.each(n, func(i int) error {
		s.fillFloats(in, i)
		err := mpi.Allreduce(s.world, in, out, op)
		s.compareSum(out, i)
		return err
	})
}

// floats are the floats in b, whose memory make has aligned for them.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// Small whole numbers add up without rounding, in any order.

func (s *session) fillFloats(in []float32, sequence int) {
	if !s.Validate {
		return
	}
	for k := range in {
		in[k] = float32((s.world.Rank()+1)*(k%7) + sequence%5)
	}
}

func (s *session) compareSum(out []float32, sequence int) {
	if !s.Validate {
		return
	}
	size := s.world.Size()
	for k := range out {
		if out[k] != float32(size*(size+1)/2*(k%7)+size*(sequence%5)) {
			s.wrong = true
			return
		}
	}
}
