package bench

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weft-mpi/weft/mpi"
)

// usualThreads is how many goroutines of a rank send or receive, if the user says nothing.
const usualThreads = 2

// threadRate is the messages that goroutines of rank 0 send at once to as many of rank 1, each pair on a
// communicator of its own, with a window of messages under way.
func threadRate(s *session, n int) (measurement, error) {
	if s.comms == nil {
		for range s.threads() {
			c, err := s.world.Dup()
			if err != nil {
				return measurement{}, err
			}
			s.comms = append(s.comms, c)
		}
	}
	timed, warmup := s.iterations(n)
	ready := newMeeting(len(s.comms))
	took, errs := make([]float64, len(s.comms)), make([]error, len(s.comms))
	if err := mpi.Barrier(s.world); err != nil {
		return measurement{}, err
	}
	var all sync.WaitGroup
	for i, c := range s.comms {
		all.Go(func() {
			p := threadPair{comm: c, message: make([]byte, n), requests: make([]mpi.Request, s.Window)}
			begin := s.now()
			for k := 0; k < warmup+timed && errs[i] == nil; k++ {
				if k == warmup {
					ready.meet()
					begin = s.now()
				}
				errs[i] = p.window()
			}
			took[i] = s.now() - begin
			if errs[i] != nil {
				ready.leave() // the others of this rank need not wait for it
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return measurement{}, err
	}
	longest := 0.0
	for _, t := range took {
		longest = max(longest, t)
	}
	messages := float64(len(s.comms)) * float64(timed) * float64(s.Window)
	return measurement{value: messages / longest / 1e6}, nil
}

func (o *Options) threads() int {
	if o.Threads == 0 {
		return usualThreads
	}
	return o.Threads
}

// threadPair is one end of a pair of goroutines.
type threadPair struct {
	comm     *mpi.Comm
	message  []byte
	requests []mpi.Request
	answer   [1]byte
}

// window moves one window of messages, and the answer to it.
func (p *threadPair) window() (err error) {
	sends := p.comm.Rank() == 0
	for i := range p.requests {
		if sends {
			p.requests[i], err = mpi.Isend(p.comm, p.message, 1, pingTag)
		} else {
			p.requests[i], err = mpi.Irecv(p.comm, p.message, 0, pingTag)
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

// meeting is where goroutines wait until all of them are there, or have left.
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

var threadRates = &Benchmark{
	Name:  "rate_mt",
	Short: "message rate of goroutines in pairs, each pair on a communicator of its own", Ranks: 2, Start: 2,
	title: "Multi-threaded Message Rate", Threaded: true, measureSize: threadRate,
	// more endpoints than communicators cost nothing
	defaults: map[string]string{"WEFT_ENDPOINTS": "8"},
	spec: &tableSpec{
		columns: tableOf("1/us", sizeColumn,
			column{name: "messages", heading: "Million messages/s", unit: "1/us", width: 20, of: valueOf}),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 64 << 10, axes: rateAxes,
		counts: counts{400, 40, 50, 5},
	},
	preamble: func(s *session) string {
		return fmt.Sprintf("# [ pairs of goroutines: %d ] [ window size: %d ]", s.threads(), s.Window)
	},
}
