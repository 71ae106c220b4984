package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi"
)

// usualThreads is the default number of goroutines of a rank that send or receive in rate_mt.
const usualThreads = 2

// threadRate measures the rate of messages from goroutines of rank 0 to as many of rank 1, each pair on its
// own communicator, with windows of messages.
func threadRate(s *session, n int) (measurement, error) {
	timed, _ := s.iterations(n)
	took, err := s.inPairs(n, s.Window*s.world.Rank(), (*threadPair).window)
	messages := float64(s.threads()) * float64(timed) * float64(s.Window)
	return measurement{value: messages / slices.Max(took) / 1e6}, err
}

// threadLatencies measures the mean over pairs of goroutines that play ping-pong at once, each pair on its
// own communicator.
func threadLatencies(s *session, n int) (measurement, error) {
	timed, _ := s.iterations(n)
	took, err := s.inPairs(n, 1, (*threadPair).round)
	sum := 0.0
	for _, t := range took {
		sum += t
	}
	return measurement{value: oneWayMicroseconds(sum / float64(len(took)*timed)),
		tails: s.tails(oneWayMicroseconds)}, err
}

// inPairs runs the rounds of a size in all goroutines of this rank, with a number of received messages in
// each round, and returns the seconds of each goroutine's timed rounds.
func (s *session) inPairs(n, messages int, round func(*threadPair) error) (took []float64, err error) {
	took = make([]float64, s.threads())
	pairs, err := s.threadPairs(n, messages)
	if err != nil {
		return took, err
	}
	ready, errs := newMeeting(len(pairs)), make([]error, len(pairs))
	if err := mpi.Barrier(s.world); err != nil {
		return took, err
	}
	var all sync.WaitGroup
	for i := range pairs {
		all.Go(func() {
			took[i], errs[i] = pairs[i].rounds(ready, round)
		})
	}
	all.Wait()
	if s.Tails {
		s.times.Reset()
		for i := range pairs {
			s.times.Merge(pairs[i].watch.times)
		}
	}
	return took, errors.Join(errs...)
}

// threadPairs makes this rank's ends of the pairs.
func (s *session) threadPairs(n, messages int) ([]threadPair, error) {
	pairs, validating := make([]threadPair, s.threads()), new(sync.Mutex)
	for i := range pairs {
		if i == len(s.comms) {
			c, err := s.world.Dup()
			if err != nil {
				return nil, err
			}
			s.comms = append(s.comms, c)
		}
		p := &pairs[i]
		*p = threadPair{session: s, number: i, comm: s.comms[i], watch: s.ownStopwatch(),
			validating: validating, requests: make([]mpi.Request, s.Window)}
		room := n
		if s.Validate {
			p.stride = n
			p.messages = messages
			room = n * max(messages, 1)
		}
		var err error
		if p.out, err = s.buffer(n); err != nil {
			return nil, err
		}
		if p.in, err = s.buffer(room); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

func (o *Options) threads() int {
	if o.Threads == 0 {
		return usualThreads
	}
	return o.Threads
}

// threadPair is one end of a pair of goroutines.
type threadPair struct {
	*session
	number   int
	comm     *mpi.Comm
	watch    *stopwatch
	out, in  []byte
	requests []mpi.Request
	answer   [1]byte

	// If messages are validated, each message of a round has its own memory.
	validating       *sync.Mutex // of all pairs of this rank
	messages, stride int
}

// rounds runs all rounds of one goroutine.
func (p *threadPair) rounds(ready *meeting, round func(*threadPair) error) (took float64, err error) {
	n := len(p.out)
	timed, warmup := p.iterations(n)
	for k := range warmup + timed {
		if k == warmup {
			ready.meet()
			p.watch.begin()
		}
		sequence := k*p.threads() + p.number
		if p.refills() {
			err = p.watch.pause(func() error {
				p.pattern(p.out, p.comm.Rank(), sequence)
				return mpi.Barrier(p.comm)
			})
		}
		if err == nil {
			err = round(p)
		}
		if err != nil {
			if k < warmup {
				ready.leave() // the others of this rank need not wait for it
			}
			return 0, err
		}
		p.watch.split()
		for i := range p.messages {
			p.watch.pause(func() error {
				p.validating.Lock()
				defer p.validating.Unlock()
				p.compareMessage(p.in[i*n:][:n], 1-p.comm.Rank(), sequence)
				return nil
			})
		}
	}
	return p.watch.elapsed(), nil
}

// window moves one window of messages, and the answer to it.
func (p *threadPair) window() (err error) {
	sends, n := p.comm.Rank() == 0, len(p.out)
	for i := range p.requests {
		if sends {
			p.requests[i], err = mpi.Isend(p.comm, p.out, 1, pingTag)
		} else {
			p.requests[i], err = mpi.Irecv(p.comm, p.in[i*p.stride:][:n], 0, pingTag)
		}
		if err != nil {
			return err
		}
	}
	if err := mpi.Waitall(p.requests); err != nil {
		return err
	}
	if sends {
		_, err = mpi.Recv(p.comm, p.answer[:], 1, answerTag)
		return err
	}
	return mpi.Send(p.comm, p.answer[:], 0, answerTag)
}

// round exchanges a message and its answer.
func (p *threadPair) round() error {
	if p.comm.Rank() == 0 {
		if err := mpi.Send(p.comm, p.out, 1, pingTag); err != nil {
			return err
		}
		_, err := mpi.Recv(p.comm, p.in, 1, answerTag)
		return err
	}
	if _, err := mpi.Recv(p.comm, p.in, 0, pingTag); err != nil {
		return err
	}
	return mpi.Send(p.comm, p.out, 0, answerTag)
}

// meeting makes goroutines wait until all of them have come, or have left.
type meeting struct {
	mu      sync.Mutex
	missing int
	all     chan struct{}
}

func newMeeting(n int) *meeting { return &meeting{missing: n, all: make(chan struct{})} }

func (m *meeting) meet() {
	m.leave()
	<-m.all
}

func (m *meeting) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missing--; m.missing == 0 {
		close(m.all)
	}
}

// manyEndpoints spreads the communicators of goroutines over the maximum number of endpoints. Unused
// endpoints cost nothing.
var manyEndpoints = map[string]string{setting.Endpoints.Name: strconv.Itoa(contextid.MaxEndpoints)}

// pairRates is the table of rate_mt.
var pairRates = &tableSpec{
	columns: tableOf("1/us", sizeColumn,
		column{name: "messages", heading: "Million messages/s", unit: "1/us", width: 20, of: valueOf}),
	datatype: "MPI_CHAR", element: 1, min: 1, max: 64 << 10, axes: rateAxes,
	counts: counts{400, 40, 50, 5},
}

var threadRates = &Benchmark{
	Name:  "rate_mt",
	Short: "message rate of goroutines in pairs, each pair on a communicator of its own", Ranks: 2, Start: 2,
	title: "Multi-threaded Message Rate", Threaded: true, measureSize: threadRate,
	defaults: manyEndpoints,
	spec:     pairRates,
	preamble: func(s *session) string {
		return fmt.Sprintf("# [ pairs of goroutines: %d ] [ window size: %d ]", s.threads(), s.Window)
	},
}
