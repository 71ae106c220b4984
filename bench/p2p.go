package bench

import "github.com/weft-mpi/weft/mpi"

// Tags of the messages.
const (
	pingTag   = 1
	dataTag   = 100
	answerTag = 101
)

// pairs returns the number of pairs: each rank of the first half with one of the second.
func (s *session) pairs() int { return s.world.Size() / 2 }

// partner returns the other rank of this one's pair, and whether this one begins.
func (s *session) partner() (other int, begins bool) {
	if me := s.world.Rank(); me >= s.pairs() {
		return me - s.pairs(), false
	}
	return s.world.Rank() + s.pairs(), true
}

// latency measures a ping-pong: half of the time of a round. The loop calls only the two operations that it
// measures.
func latency(s *session, n int) (measurement, error) {
	timed, warmup := s.iterations(n)
	out, in := s.send[:n], s.recv[:n]
	other, begins := s.partner()
	watch := s.stopwatch()
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return measurement{}, err
			}
			watch.begin()
		}
		if s.refills() {
			err := watch.pause(func() error {
				s.pattern(out, s.world.Rank(), i)
				return mpi.Barrier(s.world)
			})
			if err != nil {
				return measurement{}, err
			}
		}
		if begins {
			if err := mpi.Send(s.world, out, other, pingTag); err != nil {
				return measurement{}, err
			}
			if _, err := mpi.Recv(s.world, in, other, pingTag); err != nil {
				return measurement{}, err
			}
		} else {
			if _, err := mpi.Recv(s.world, in, other, pingTag); err != nil {
				return measurement{}, err
			}
			if err := mpi.Send(s.world, out, other, pingTag); err != nil {
				return measurement{}, err
			}
		}
		watch.split()
		if s.Validate {
			watch.pause(func() error {
				s.compareMessage(in, other, i)
				return nil
			})
		}
	}
	took := watch.elapsed()
	return measurement{value: took * 1e6 / float64(2*timed), tails: s.tails(oneWayMicroseconds)}, nil
}

// oneWayMicroseconds returns half the time of a round.
func oneWayMicroseconds(round float64) float64 { return round * 1e6 / 2 }

// multiLatency measures the mean over pairs that play ping-pong at once.
func multiLatency(s *session, n int) (measurement, error) {
	c, err := latency(s, n)
	if err != nil {
		return measurement{}, err
	}
	if c, err = s.spread(c.value); err != nil {
		return measurement{}, err
	}
	if err := s.merge(); err != nil {
		return measurement{}, err
	}
	c.tails = s.tails(oneWayMicroseconds)
	return c, nil
}

// bandwidth measures windows of messages from rank 0 to rank 1, which answers when it has them all.
func bandwidth(s *session, n int) (measurement, error) {
	took, err := s.oneWay(n)
	return measurement{value: s.megabytes(n) / took, tails: s.tails(s.bandwidthOf(n, 1))}, err
}

// bothWays measures windows that both ranks send and receive.
func bothWays(s *session, n int) (measurement, error) {
	other, _ := s.partner()
	requests := make([]mpi.Request, 2*s.Window)
	took, err := s.rounds(n, true, func() error {
		if err := s.irecvs(n, other, requests[:s.Window]); err != nil {
			return err
		}
		if err := s.isends(n, other, requests[s.Window:]); err != nil {
			return err
		}
		return mpi.Waitall(requests)
	})
	return measurement{value: 2 * s.megabytes(n) / took, tails: s.tails(s.bandwidthOf(n, 2))}, err
}

// messageRate measures the total rate of all pairs at once, with the mean of the senders' times.
func messageRate(s *session, n int) (measurement, error) {
	took, err := s.oneWay(n)
	if err != nil {
		return measurement{}, err
	}
	if _, sends := s.partner(); !sends {
		took = 0
		if s.Tails {
			s.times.Reset()
		}
	}
	if err := s.merge(); err != nil {
		return measurement{}, err
	}
	mean, err := s.spread(took)
	if err != nil {
		return measurement{}, err
	}
	senders := float64(s.pairs())
	value := senders * s.megabytes(n) / (mean.value * float64(s.world.Size()) / senders)
	return measurement{value: value, rate: value * 1e6 / float64(n),
		tails: s.tails(s.bandwidthOf(n, s.pairs()))}, nil
}

// bandwidthOf returns a function from a time to the MB/s of a number of windows.
func (s *session) bandwidthOf(n, windows int) func(seconds float64) float64 {
	return func(seconds float64) float64 {
		return float64(n) / 1e6 * float64(s.Window) * float64(windows) / seconds
	}
}

// megabytes returns the megabytes (1e6 bytes) of all timed windows in one direction.
func (s *session) megabytes(n int) float64 {
	timed, _ := s.iterations(n)
	return float64(n) / 1e6 * float64(timed) * float64(s.Window)
}

// oneWay returns the seconds of the windows from the beginning ranks to their partners.
func (s *session) oneWay(n int) (float64, error) {
	other, sends := s.partner()
	requests, answer := make([]mpi.Request, s.Window), make([]byte, 1)
	if sends {
		return s.rounds(n, false, func() error {
			if err := s.isends(n, other, requests); err != nil {
				return err
			}
			if err := mpi.Waitall(requests); err != nil {
				return err
			}
			_, err := mpi.Recv(s.world, answer, other, answerTag)
			return err
		})
	}
	return s.rounds(n, true, func() error {
		if err := s.irecvs(n, other, requests); err != nil {
			return err
		}
		if err := mpi.Waitall(requests); err != nil {
			return err
		}
		return mpi.Send(s.world, answer, other, answerTag)
	})
}

// rounds returns the seconds of the timed rounds, each of which moves windows. It validates what this rank
// receives.
func (s *session) rounds(n int, receives bool, round func() error) (float64, error) {
	other, _ := s.partner()
	timed, warmup := s.iterations(n)
	watch := s.stopwatch()
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return 0, err
			}
			watch.begin()
		}
		if s.refills() {
			err := watch.pause(func() error {
				s.fillWindow(n, i)
				return mpi.Barrier(s.world)
			})
			if err != nil {
				return 0, err
			}
		}
		if err := round(); err != nil {
			return 0, err
		}
		watch.split()
		if s.Validate && receives {
			watch.pause(func() error {
				s.compareWindow(n, other, i)
				return nil
			})
		}
	}
	return watch.elapsed(), nil
}

// windowIfValidating returns the number of messages in the receive buffer: a whole window if they are
// validated, since OSU's single buffer could not be compared.
func windowIfValidating(o Options, _, _ int) int {
	if o.Validate {
		return o.Window
	}
	return 1
}

// In a validated window, message j begins j bytes into the send buffer, so that all messages differ, and has
// its own place in the receive buffer. With rewriting, each message has its own place in the send buffer,
// too: otherwise all but the first would be read again unchanged.

func (s *session) fillWindow(n, round int) {
	if !s.Rewrite {
		s.pattern(s.send[:n+s.Window], s.world.Rank(), round)
		return
	}
	window := s.want[:n+s.Window]
	s.pattern(window, s.world.Rank(), round)
	for j := range s.Window {
		copy(s.send[j*n:][:n], window[j:])
	}
}

func (s *session) isends(n, dst int, requests []mpi.Request) (err error) {
	for j := range requests {
		out := s.send[:n]
		switch {
		case s.Rewrite:
			out = s.send[j*n:][:n]
		case s.Validate:
			out = s.send[j:][:n]
		}
		if s.Vector > 1 {
			requests[j], err = mpi.IsendVec(s.world, s.pieces(&s.sendVec, j, out), dst, dataTag)
		} else {
			requests[j], err = mpi.Isend(s.world, out, dst, dataTag)
		}
		if err != nil {
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
		if s.Vector > 1 {
			requests[j], err = mpi.IrecvVec(s.world, s.pieces(&s.recvVec, j, in), src, dataTag)
		} else {
			requests[j], err = mpi.Irecv(s.world, in, src, dataTag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pieces cuts the j-th message of a window into a vector of the number of elements that the user has set. It
// reuses the memory in vecs.
func (s *session) pieces(vecs *[][]byte, j int, b []byte) [][]byte {
	if *vecs == nil {
		*vecs = make([][]byte, s.Window*s.Vector)
	}
	vec := (*vecs)[j*s.Vector:][:s.Vector]
	for k := range vec {
		vec[k] = b[len(b)*k/s.Vector : len(b)*(k+1)/s.Vector]
	}
	return vec
}

func (s *session) compareWindow(n, source, round int) {
	want := s.want[:n+s.Window]
	pattern(want, source, round)
	for j := range s.Window {
		s.compare(s.recv[j*n:][:n], want[j:][:n], source, round*s.Window+j)
	}
}
