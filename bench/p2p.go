package bench

import (
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// latency is a ping-pong: half of the time of a round.
func latency(s *session, n int) (cell, error) {
	const tag = 1
	timed, warmup := s.iterations(n)
	out, in := s.send[:n], s.recv[:n]
	me, other := s.world.Rank(), 1-s.world.Rank()
	var start time.Time
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return cell{}, err
			}
			start = time.Now()
		}
		s.fill(out, me, i)
		if me == 0 {
			if err := mpi.Send(s.world, out, other, tag); err != nil {
				return cell{}, err
			}
		}
		if _, err := mpi.Recv(s.world, in, other, tag); err != nil {
			return cell{}, err
		}
		if me == 1 {
			if err := mpi.Send(s.world, out, other, tag); err != nil {
				return cell{}, err
			}
		}
		s.compare(in, other, i)
	}
	return cell{value: microseconds(start) / float64(2*timed)}, nil
}

func microseconds(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e3 }

const (
	dataTag   = 100
	answerTag = 101
)

// bandwidth has a window of messages under way from rank 0 to rank 1, which answers when it has them all.
func bandwidth(s *session, n int) (cell, error) {
	me, other := s.world.Rank(), 1-s.world.Rank()
	requests := make([]mpi.Request, s.Window)
	ins := s.windows(n, me == 1)
	answer := make([]byte, 1)
	seconds, timed, err := s.rounds(n, func(i int) error {
		if me == 0 {
			s.fill(s.send[:n], me, i)
			if err := isends(s, n, other, requests); err != nil {
				return err
			}
			if err := mpi.Waitall(requests); err != nil {
				return err
			}
			_, err := mpi.Recv(s.world, answer, other, answerTag)
			return err
		}
		if err := irecvs(s, ins, other, requests); err != nil {
			return err
		}
		if err := mpi.Waitall(requests); err != nil {
			return err
		}
		for _, in := range ins {
			s.compare(in, other, i)
		}
		return mpi.Send(s.world, answer, other, answerTag)
	})
	return cell{value: float64(n) / 1e6 * float64(timed) * float64(s.Window) / seconds}, err
}

// bothWays has both ranks send a window and receive one.
func bothWays(s *session, n int) (cell, error) {
	me, other := s.world.Rank(), 1-s.world.Rank()
	requests := make([]mpi.Request, 2*s.Window)
	ins := s.windows(n, true)
	seconds, timed, err := s.rounds(n, func(i int) error {
		s.fill(s.send[:n], me, i)
		if err := irecvs(s, ins, other, requests[:s.Window]); err != nil {
			return err
		}
		if err := isends(s, n, other, requests[s.Window:]); err != nil {
			return err
		}
		if err := mpi.Waitall(requests); err != nil {
			return err
		}
		for _, in := range ins {
			s.compare(in, other, i)
		}
		return nil
	})
	return cell{value: 2 * float64(n) / 1e6 * float64(timed) * float64(s.Window) / seconds}, err
}

// rounds times a round: seconds for so many.
func (s *session) rounds(n int, round func(i int) error) (seconds float64, timed int, err error) {
	timed, warmup := s.iterations(n)
	var start time.Time
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return 0, 0, err
			}
			start = time.Now()
		}
		if err := round(i); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(start).Seconds(), timed, nil
}

// windows are the receive buffers of a window: one for all as OSU has it, or one each if what they hold is to be compared.
func (s *session) windows(n int, receives bool) [][]byte {
	if !receives {
		return nil
	}
	ins := make([][]byte, s.Window)
	for i := range ins {
		if ins[i] = s.recv[:n]; s.Validate {
			ins[i] = make([]byte, n)
		}
	}
	return ins
}

func isends(s *session, n, dst int, requests []mpi.Request) (err error) {
	for i := range requests {
		if requests[i], err = mpi.Isend(s.world, s.send[:n], dst, dataTag); err != nil {
			return err
		}
	}
	return nil
}

func irecvs(s *session, ins [][]byte, src int, requests []mpi.Request) (err error) {
	for i := range requests {
		if requests[i], err = mpi.Irecv(s.world, ins[i], src, dataTag); err != nil {
			return err
		}
	}
	return nil
}
