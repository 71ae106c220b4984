package bench

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi"
)

// session is one run of a benchmark on one rank.
type session struct {
	*Benchmark
	Options
	instruments
	world     *mpi.Comm
	initTook  float64 // seconds
	before    int     // resident memory before this rank has communicated, if the benchmark needs it
	out       *table  // of rank 0; the others' output is discarded
	by        Invocation
	settings  setting.Values
	report    *Report                 // of rank 0; otherwise nil
	times     *hdrhistogram.Histogram // of the iterations of a size, with tails
	send      []byte                  // a message and Window bytes more, or a window of messages
	recv      []byte
	sendVec   [][]byte // elements of the messages in flight, if they are vectors
	recvVec   [][]byte
	want      []byte      // when validating: the expected bytes; when rewriting: the bytes to send
	sums      []byte      // when validating: the expected results of reductions
	cart      *mpi.Cart   // of the neighbor collectives
	comms     []*mpi.Comm // of the pairs of goroutines of rate_mt and latency_mt
	wrong     error       // the first error of validation here
	unwritten error       // why the incomplete report was not written
	besides   []*Report   // of the jobs that ran before this one, if rank 0 has their reports
}

// instruments are the means of measurement: a clock in seconds, the bytes for validation, the memory of this
// process in bytes, and the time to warm up. Tests have their own.
type instruments struct {
	now      func() float64
	date     func() time.Time
	pattern  func(b []byte, source, sequence int)
	resident func() (int, error)
	warmUp   time.Duration
}

// warmUpTime is how long the ranks warm up before the first size. For about 50 ms after its start, Go's
// runtime checks every millisecond, on the rank's own core, whether one of its threads is stuck in a system
// call, which takes 15 µs. The figure of a size would depend on the time since the start.
const warmUpTime = 60 * time.Millisecond

// warmUpRanks makes the ranks exchange messages until all have run for long enough.
func (s *session) warmUpRanks() error {
	for begin, left := time.Now(), []int32{1}; left[0] > 0; {
		left[0] = 0
		if time.Since(begin) < s.warmUp {
			left[0] = 1
		}
		if err := mpi.Allreduce(s.world, mpi.InPlace[int32](), left, mpi.Max[int32]()); err != nil {
			return err
		}
	}
	return nil
}

// newSession returns a session whose rank 0 prints to out.
func newSession(b *Benchmark, o Options, world *mpi.Comm, out io.Writer, with instruments) *session {
	if world.Rank() != 0 {
		out = io.Discard
	}
	return &session{Benchmark: b, Options: o, instruments: with, world: world,
		settings: setting.Environment(), out: &table{out: out}}
}

// outcome measures, and separates errors that this rank returns at its end (own) from those that end the
// whole job (fatal). An error that all ranks have together is not fatal: one rank reports it.
func (s *session) outcome() (own, fatal error) {
	err := s.measure()
	var option *OptionError
	switch {
	case errors.Is(err, ErrInvalid):
		return errors.Join(s.wrong, s.unwritten), nil
	case errors.As(err, &option) && s.world.Rank() == 0:
		return err, nil
	case errors.As(err, &option):
		return nil, nil
	}
	return nil, err
}

// measure runs the benchmark. An *OptionError or ErrInvalid occurs at all ranks together.
func (s *session) measure() error {
	if s.world.Rank() != 0 {
		return s.figures(nil)
	}
	ends, err := s.ends()
	s.report = s.newReport()
	if err := s.figures(err); err != nil {
		s.unwritten = ends.partial(s, err)
		return errors.Join(err, s.unwritten)
	}
	return ends.finish(s)
}

// figures measures and prints the table, unless rank 0 has a reason to refuse.
func (s *session) figures(refusal error) error {
	if s.setup != nil {
		if err := s.setup(s); err != nil {
			return err
		}
	}
	if err := s.agreed(refusal); err != nil {
		return err
	}
	if err := s.Check(s.Options, s.world.Size()); err != nil {
		return err
	}
	if s.runAll != nil {
		if err := s.runAll(s); err != nil {
			return err
		}
		return s.out.err
	}
	low, high := s.sizes(s.Options)
	var err error
	outgoing := high + s.Window
	if s.Rewrite && s.windows() {
		outgoing = high * s.Window
	}
	if s.sendCount != nil {
		outgoing = high * s.sendCount(s.Options, s.world.Rank(), s.world.Size())
	}
	if s.send, err = s.buffer(outgoing); err != nil {
		return err
	}
	if s.recv, err = s.buffer(high * s.recvMessages(s.Options, s.world.Rank(), s.world.Size())); err != nil {
		return err
	}
	if s.refills() {
		s.want, s.sums = buffer(high+s.Window), buffer(high)
	}
	// Nothing is allocated during the measurement, so there is only older garbage to collect.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := s.warmUpRanks(); err != nil {
		return err
	}
	s.heading()
	for n := low; n <= high; n *= 2 {
		s.progress(n, low, high)
		if err := mpi.Barrier(s.world); err != nil {
			return err
		}
		c, err := s.measureSize(s, n)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", s.Name, n, err)
		}
		ok, err := s.allRight()
		if err != nil {
			return err
		}
		c.size, c.wrong = n, !ok
		c.iterations, _ = s.iterations(n)
		s.row(row(s.spec.columns, &c))
		if s.out.err != nil {
			return s.out.err
		}
		if !ok {
			return ErrInvalid
		}
	}
	return nil
}

// agreed refuses ranks that were started with different options, as they would wait for messages that nobody
// sends. If rank 0 has a refusal, all refuse, rank 0 with that reason. The messages go along the line of
// ranks and back, so that no rank has more than two connections afterwards.
func (s *session) agreed(refusal error) error {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %+v", s.Name, s.Options)
	const disagreement = 0
	mine := h.Sum64() | 1
	word := []uint64{mine}
	me, last := s.world.Rank(), s.world.Size()-1
	if refusal != nil {
		word[0] = disagreement
	}
	if me > 0 {
		if _, err := mpi.Recv(s.world, word, me-1, pingTag); err != nil {
			return err
		}
		if word[0] != mine {
			word[0] = disagreement
		}
	}
	if me < last {
		if err := mpi.Send(s.world, word, me+1, pingTag); err != nil {
			return err
		}
		if _, err := mpi.Recv(s.world, word, me+1, pingTag); err != nil {
			return err
		}
	}
	if me > 0 {
		if err := mpi.Send(s.world, word, me-1, pingTag); err != nil {
			return err
		}
	}
	if refusal != nil {
		return refusal
	}
	if word[0] == disagreement {
		return optionErrorf("%s: the ranks were started with different options", s.Name)
	}
	return nil
}

// buffer returns memory for messages, of the kind that the user has chosen. It is never freed.
func (s *session) buffer(n int) ([]byte, error) {
	if !s.Registered {
		return buffer(n), nil
	}
	b, err := mpi.Alloc[byte](n)
	clear(b)
	return b, err
}

// buffer returns ordinary memory on separate pages, as in other benchmarks. Every page has been written: the
// kernel backs all unwritten pages with the same page, which is faster to send than any real message.
func buffer(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1)
	b = b[skip:][:n:n]
	clear(b)
	return b
}

// iterations returns the numbers of iterations of a size, by the options.
func (s *session) iterations(n int) (timed, warmup int) {
	timed, warmup = s.spec.of(n)
	if s.Iterations > 0 {
		timed = s.Iterations
	}
	if s.Warmup >= 0 {
		warmup = s.Warmup
	}
	return timed, warmup
}

func (s *session) heading() {
	preamble := ""
	if s.preamble != nil {
		preamble = s.preamble(s)
	}
	s.out.heading(s.test(), s.spec.datatype, preamble, s.spec.columns, &s.Options)
}

// row prints a row of the table and puts it into the report.
func (s *session) row(figures []float64) {
	s.progress(0, 0, 0)
	if len(figures) < len(s.spec.columns) {
		figures = s.withBesides(figures)
	}
	s.out.row(s.spec.columns, figures, &s.Options)
	s.report.add(figures)
}
