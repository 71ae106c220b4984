package bench

import "github.com/weft-mpi/weft/mpi"

// Tags of the messages.
const (
	pingTag   = 1
	dataTag   = 100
	answerTag = 101
)

// latency is a ping-pong: half of the time of a round. The loop calls nothing but the two operations that it is to measure.
func latency(s *session, n int) (cell, error) {
	timed, warmup := s.iterations(n)
	out, in := s.send[:n], s.recv[:n]
	me, other := s.world.Rank(), 1-s.world.Rank()
	var start float64
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return cell{}, err
			}
			start = s.now()
		}
		if s.Validate {
			err := s.pause(&start, func() error {
				s.pattern(out, me, i)
				return mpi.Barrier(s.world)
			})
			if err != nil {
				return cell{}, err
			}
		}
		if me == 0 {
			if err := mpi.Send(s.world, out, other, pingTag); err != nil {
				return cell{}, err
			}
			if _, err := mpi.Recv(s.world, in, other, pingTag); err != nil {
				return cell{}, err
			}
		} else {
			if _, err := mpi.Recv(s.world, in, other, pingTag); err != nil {
				return cell{}, err
			}
			if err := mpi.Send(s.world, out, other, pingTag); err != nil {
				return cell{}, err
			}
		}
		if s.Validate {
			s.pause(&start, func() error {
				s.compareMessage(in, other, i)
				return nil
			})
		}
	}
	return cell{value: (s.now() - start) * 1e6 / float64(2*timed)}, nil
}

// bandwidth has a window of messages under way from rank 0 to rank 1, which answers when it has them all.
func bandwidth(s *session, n int) (cell, error) {
	other := 1 - s.world.Rank()
	requests, answer := make([]mpi.Request, s.Window), make([]byte, 1)
	sender := func() error {
		if err := s.isends(n, other, requests); err != nil {
			return err
		}
		if err := mpi.Waitall(requests); err != nil {
			return err
		}
		_, err := mpi.Recv(s.world, answer, other, answerTag)
		return err
	}
	receiver := func() error {
		if err := s.irecvs(n, other, requests); err != nil {
			return err
		}
		if err := mpi.Waitall(requests); err != nil {
			return err
		}
		return mpi.Send(s.world, answer, other, answerTag)
	}
	if s.world.Rank() == 0 {
		return s.rounds(n, 1, sender)
	}
	return s.rounds(n, 1, receiver)
}

// bothWays has both ranks send a window and receive one.
func bothWays(s *session, n int) (cell, error) {
	other := 1 - s.world.Rank()
	requests := make([]mpi.Request, 2*s.Window)
	return s.rounds(n, 2, func() error {
		if err := s.irecvs(n, other, requests[:s.Window]); err != nil {
			return err
		}
		if err := s.isends(n, other, requests[s.Window:]); err != nil {
			return err
		}
		return mpi.Waitall(requests)
	})
}

// rounds times rounds that each move a window one way or both, and gives MB/s.
func (s *session) rounds(n, ways int, round func() error) (cell, error) {
	me, other := s.world.Rank(), 1-s.world.Rank()
	receives := me == 1 || ways == 2
	timed, warmup := s.iterations(n)
	var start float64
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return cell{}, err
			}
			start = s.now()
		}
		if s.Validate {
			err := s.pause(&start, func() error {
				s.pattern(s.send[:n+s.Window], me, i)
				return mpi.Barrier(s.world)
			})
			if err != nil {
				return cell{}, err
			}
		}
		if err := round(); err != nil {
			return cell{}, err
		}
		if s.Validate && receives {
			s.pause(&start, func() error {
				s.compareWindow(n, other, i)
				return nil
			})
		}
	}
	return cell{value: float64(ways) * float64(n) / 1e6 * float64(timed) * float64(s.Window) / (s.now() - start)}, nil
}

// windowIfValidating is the room for a window: OSU's benchmarks receive it all in one place, but then it could not be compared.
func windowIfValidating(s *session) int {
	if s.Validate {
		return s.Window
	}
	return 1
}

// Of a window that is validated, message j begins j bytes further on in what is sent, so that all messages differ, and has a place of
// its own in what is received.

func (s *session) isends(n, dst int, requests []mpi.Request) (err error) {
	for j := range requests {
		out := s.send[:n]
		if s.Validate {
			out = s.send[j:][:n]
		}
		if requests[j], err = mpi.Isend(s.world, out, dst, dataTag); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) irecvs(n, src int, requests []mpi.Request) (err error) {
	for j := range requests {
		in := s.recv[:n]
		if s.Validate {
			in = s.recv[j*n:][:n]
		}
		if requests[j], err = mpi.Irecv(s.world, in, src, dataTag); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) compareWindow(n, source, round int) {
	want := s.want[:n+s.Window]
	pattern(want, source, round)
	for j := range s.Window {
		s.compare(s.recv[j*n:][:n], want[j:][:n], source, round*s.Window+j)
	}
}
