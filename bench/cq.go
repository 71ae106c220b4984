package bench

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi"
)

const (
	cqMessage   = 8       // bytes of the ping-pong
	streamBytes = 1 << 20 // of a message of the stream
	streamDepth = 4       // messages of the stream in flight
)

// layout is a way to serve the two communicators of cq.
type layout struct {
	endpoints int // endpoints of the communicators
	threads   int // threads of the endpoints' completion handlers
	bulk      bool
	stream    bool
}

// layouts are the layouts that cq measures. A handler that has become bulk stays bulk.
var layouts = []layout{
	{1, 1, false, false}, {1, 1, false, true},
	{2, 1, false, true}, {2, 2, false, true}, {2, 1, true, true}, {2, 2, true, true},
}

// cqRun has the communicators of cq, and the cores of the completion handlers, if any.
type cqRun struct {
	*session
	pings, same, other *mpi.Comm // same is on the endpoint of pings, other, which may be nil, on another
	cores              []int
	message, buffer    []byte
	watch              *stopwatch
}

// serving measures a ping-pong on one communicator while a stream of large messages runs on another, with the
// counters of rank 0's completion handlers.
func serving(s *session) error {
	r := &cqRun{session: s, message: make([]byte, cqMessage), buffer: buffer(streamDepth * streamBytes)}
	r.watch = &stopwatch{now: s.now, times: hdrhistogram.New(1, longest, exactDigits)}
	if err := r.prepare(); err != nil {
		return err
	}
	if err := s.warmUpRanks(); err != nil {
		return err
	}
	s.heading()
	for _, l := range layouts {
		if l.endpoints > 1 && r.other == nil || l.threads > max(1, len(r.cores)) {
			continue
		}
		if err := r.measure(l); err != nil {
			return err
		}
	}
	return s.out.err
}

// prepare makes the communicators. Ranks begin with different cores, in case they share them.
func (r *cqRun) prepare() (err error) {
	cores := r.settings.Of(setting.HandlerCores).String()
	if cores != "" {
		if r.cores, err = topology.ParseCPUList(cores); err != nil {
			return err
		}
		first := r.world.Rank() % len(r.cores)
		r.cores = slices.Concat(r.cores[first:], r.cores[:first])
	}
	if r.pings, err = r.world.Dup(mpi.OnEndpoint(0)); err != nil {
		return err
	}
	if r.same, err = r.world.Dup(mpi.OnEndpoint(0)); err != nil {
		return err
	}
	if r.other, err = r.world.Dup(mpi.OnEndpoint(1)); errors.Is(err, mpi.ErrArg) {
		return nil // the ranks have only one endpoint
	}
	return err
}

// measure measures one layout. There is a row for each endpoint.
func (r *cqRun) measure(l layout) error {
	carrier := r.same
	if l.endpoints > 1 {
		carrier = r.other
	}
	if err := r.serve(l, carrier); err != nil {
		return err
	}
	if err := mpi.Barrier(r.world); err != nil {
		return err
	}
	before := r.world.Stats().Endpoints
	var stop atomic.Bool
	streamed, flows, moved := make(chan error, 1), make(chan struct{}), 0.0
	began := r.now()
	if l.stream {
		go func() {
			var err error
			moved, err = r.streams(carrier, &stop, func() { close(flows) })
			streamed <- err
		}()
		select {
		case <-flows:
		case err := <-streamed: // it failed, as it goes on until stop
			return err
		}
	} else {
		streamed <- nil
	}
	err := r.pingPong()
	stop.Store(true)
	if err := errors.Join(err, <-streamed); err != nil {
		return err
	}
	took := r.now() - began
	if r.world.Rank() == 0 {
		r.rows(l, moved/took/1e6, before, r.world.Stats().Endpoints)
	}
	return nil
}

// serve moves the completion handlers to the cores of a layout.
func (r *cqRun) serve(l layout, carrier *mpi.Comm) error {
	if r.cores == nil {
		return nil
	}
	if err := r.pings.MoveHandler(r.cores[0]); err != nil || l.endpoints == 1 {
		return err
	}
	if l.bulk {
		d, err := carrier.Dup(mpi.OnEndpoint(1), mpi.Bulk())
		if err != nil {
			return err
		}
		if err := d.Free(); err != nil {
			return err
		}
	}
	return carrier.MoveHandler(r.cores[l.threads-1])
}

// pingPong times each round.
func (r *cqRun) pingPong() error {
	timed, warmup := r.iterations(cqMessage)
	other := 1 - r.world.Rank()
	for i := range warmup + timed {
		if i == warmup {
			r.watch.begin()
		}
		for _, sends := range []bool{r.world.Rank() == 0, r.world.Rank() == 1} {
			var err error
			if sends {
				err = mpi.Send(r.pings, r.message, other, pingTag)
			} else {
				_, err = mpi.Recv(r.pings, r.message, other, pingTag)
			}
			if err != nil {
				return err
			}
		}
		r.watch.split()
	}
	return nil
}

// streams sends windows of messages to rank 1, or receives them, until rank 0 stops with a window of empty
// messages. It calls flows after the first window, and returns the number of bytes moved.
func (r *cqRun) streams(c *mpi.Comm, stop *atomic.Bool, flows func()) (moved float64, err error) {
	requests, status := make([]mpi.Request, streamDepth), make([]mpi.Status, streamDepth)
	for last := false; !last; {
		n := streamBytes
		if last = c.Rank() == 0 && stop.Load(); last {
			n = 0
		}
		for i := range requests {
			b := r.buffer[i*streamBytes:][:n]
			if c.Rank() == 0 {
				requests[i], err = mpi.Isend(c, b, 1, dataTag)
			} else {
				requests[i], err = mpi.Irecv(c, b, 0, dataTag)
			}
			if err != nil {
				return moved, err
			}
		}
		if err := mpi.WaitallStatus(requests, status); err != nil {
			return moved, err
		}
		if c.Rank() == 1 {
			last = status[0].Count == 0
		}
		if moved == 0 {
			flows()
		}
		moved += float64(n * streamDepth)
	}
	return moved, nil
}

// rows prints the results of a layout.
func (r *cqRun) rows(l layout, rate float64, before, after []mpi.EndpointStats) {
	bulk := 0.0
	if l.bulk {
		bulk = 1
	}
	row := []float64{float64(l.endpoints), float64(l.threads), bulk}
	for _, p := range []float64{50, 99, 99.9} {
		row = append(row, oneWayMicroseconds(float64(r.watch.times.ValueAtQuantile(p))/1e9))
	}
	row = append(row, rate)
	for i := range l.endpoints {
		a, b := &after[i], &mpi.EndpointStats{}
		if i < len(before) {
			b = &before[i]
		}
		r.row(append(slices.Clone(row), float64(i), float64(a.HandlerCore), float64(a.Events-b.Events),
			float64(a.HandlerWakes-b.HandlerWakes), float64(a.HandlerPasses-b.HandlerPasses),
			float64(a.Completions-b.Completions)))
		for k := range row { // only in the first row
			row[k] = math.NaN()
		}
	}
}

func cqColumns() []column {
	columns := []column{
		{name: "endpoints", heading: "# Endpoints", width: -11, form: whole},
		{name: "threads", heading: "Threads", width: 9, form: whole},
		{name: "bulk", heading: "Bulk", width: 6, form: whole},
		{name: "p50", heading: "P50(us)", unit: "us", width: 10},
		{name: "p99", heading: "P99(us)", unit: "us", width: 10},
		{name: "p99_9", heading: "P99.9(us)", unit: "us", width: 11},
		{name: "stream", heading: "Stream(MB/s)", unit: "MB/s", width: 14},
		{name: "endpoint", heading: "Endpoint", width: 10, form: whole},
		{name: "core", heading: "Core", width: 6, form: whole},
	}
	for _, name := range []string{"events", "wake-ups", "passes", "completions"} {
		columns = append(columns, column{name: name, heading: name, width: 13, form: whole})
	}
	return columns
}

var handling = &tableSpec{columns: cqColumns(), counts: counts{10000, 500, 10000, 500}}
