package bench

import "github.com/weft-mpi/weft/mpi"

// Tags of the messages.
const (
	pingTag   = 1
	dataTag   = 100
	answerTag = 101
)

// pairs is how many pairs the ranks make: each of the first half with one of the second.
func (s *session) pairs() int { return s.world.Size() / 2 }

// partner is the other rank of this one's pair, and whether this one begins.
func (s *session) partner() (other int, begins bool) {
	if me := s.world.Rank(); me >= s.pairs() {
		return me - s.pairs(), false
	}
	return s.world.Rank() + s.pairs(), true
}

// latency is a ping-pong: half of the time of a round. The loop calls nothing but the two operations that it
// is to measure.
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

// oneWayMicroseconds are half of a round's.
func oneWayMicroseconds(round float64) float64 { return round * 1e6 / 2 }

// multiLatency is the mean over pairs that play ping-pong at once.
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

// bandwidth has a window of messages under way from rank 0 to rank 1, which answers when it has them all.
func bandwidth(s *session, n int) (measurement, error) {
	took, err := s.oneWay(n)
	return measurement{value: s.megabytes(n) / took, tails: s.tails(s.bandwidthOf(n, 1))}, err
}

// bothWays has both ranks send a window and receive one.
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

// messageRate is what pairs move at once, with the mean of the senders' times.
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

// bandwidthOf gives the MB/s at which so many windows are moved in a time.
func (s *session) bandwidthOf(n, windows int) func(seconds float64) float64 {
	return func(seconds float64) float64 {
		return float64(n) / 1e6 * float64(s.Window) * float64(windows) / seconds
	}
}

// megabytes are those of all timed windows one way; a megabyte is 1e6 bytes.
func (s *session) megabytes(n int) float64 {
	timed, _ := s.iterations(n)
	return float64(n) / 1e6 * float64(timed) * float64(s.Window)
}

// oneWay gives the seconds that the windows take from those ranks that begin to their partners.
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

// rounds gives the seconds that the timed rounds take, each of which moves windows. What this rank receives
// is validated.
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

// windowIfValidating is a window of messages: OSU's benchmarks receive it all in one place, but then it
// could not be compared.
func windowIfValidating(o Options, _, _ int) int {
	if o.Validate {
		return o.Window
	}
	return 1
}

// Of a window that is validated, message j begins j bytes further on in what is sent, so that all messages
// differ, and has a place of its own in what is received. Where what is sent is to be rewritten, each
// message has a place of its own there too: of messages in one place all but the first would be read again
// unchanged.

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

// pieces cuts the j-th message of a window into the vector of so many elements that the user wants. It keeps
// their memory in vecs.
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
