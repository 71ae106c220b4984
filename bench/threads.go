package bench

import (
	"sync"

	"github.com/weft-mpi/weft/mpi"
)

// receivers is the number of goroutines of rank 1 that wait for the messages of latency_mt.
const receivers = 2

// threadLatency measures a ping-pong between one goroutine of rank 0 and several of rank 1, any of which
// receives the next message; or between pairs of goroutines, if their number is set.
func threadLatency(s *session, n int) (measurement, error) {
	if s.Threads > 0 {
		return threadLatencies(s, n)
	}
	if s.world.Rank() == 0 {
		return s.serve(n)
	}
	timed, warmup := s.iterations(n)
	rally := &rally{session: s, out: s.send[:n]}
	if s.refills() {
		s.pattern(rally.out, 1, 0)
	}
	if err := mpi.Barrier(s.world); err != nil {
		return measurement{}, err
	}
	ends := make(chan error, receivers)
	for r := range receivers {
		share := (timed + warmup + receivers - 1 - r) / receivers
		go func() { ends <- rally.answer(s.recv[r*n:][:n], share) }()
	}
	// An error ends the job, and with it the goroutines that still wait.
	for range receivers {
		if err := <-ends; err != nil {
			return measurement{}, err
		}
	}
	return measurement{}, nil
}

// serve runs rank 0's side, whose clock counts.
func (s *session) serve(n int) (measurement, error) {
	const other = 1
	timed, warmup := s.iterations(n)
	out, in := s.send[:n], s.recv[:n]
	if err := mpi.Barrier(s.world); err != nil {
		return measurement{}, err
	}
	watch := s.stopwatch()
	for i := range timed + warmup {
		if i == warmup {
			watch.begin()
		}
		if s.refills() {
			watch.pause(func() error {
				s.pattern(out, 0, i)
				return nil
			})
		}
		if err := mpi.Send(s.world, out, other, pingTag); err != nil {
			return measurement{}, err
		}
		if _, err := mpi.Recv(s.world, in, other, answerTag); err != nil {
			return measurement{}, err
		}
		watch.split()
		if s.refills() {
			err := watch.pause(func() error {
				if s.Validate {
					s.compareMessage(in, other, i)
				}
				return mpi.Barrier(s.world)
			})
			if err != nil {
				return measurement{}, err
			}
		}
	}
	took := watch.elapsed()
	return measurement{value: took * 1e6 / float64(2*timed), tails: s.tails(oneWayMicroseconds)}, nil
}

// rally is the shared state of rank 1's goroutines.
type rally struct {
	*session
	out []byte // the next answer

	// One message is in flight at a time, but a goroutine may still validate it when another receives the
	// next.
	mu   sync.Mutex
	next int // number of the next message, when answers are refilled
}

// answer answers a number of messages.
func (r *rally) answer(in []byte, messages int) error {
	for range messages {
		if _, err := mpi.Recv(r.world, in, 0, pingTag); err != nil {
			return err
		}
		var err error
		if r.refills() {
			err = r.refilled(in)
		} else {
			err = mpi.Send(r.world, r.out, 0, answerTag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refilled answers a message, and afterwards, while rank 0's clock stands still, validates it and fills the
// next answer.
func (r *rally) refilled(in []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := mpi.Send(r.world, r.out, 0, answerTag); err != nil {
		return err
	}
	if r.Validate {
		r.compareMessage(in, 0, r.next)
	}
	r.next++
	r.pattern(r.out, 1, r.next)
	return mpi.Barrier(r.world)
}
