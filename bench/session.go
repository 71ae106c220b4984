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
	before    int     // resident memory before this rank has talked to any other, if the benchmark wants it
	out       *table  // of rank 0; what the others print goes nowhere
	by        Invocation
	settings  setting.Values
	report    *Report                 // of rank 0; nil else
	times     *hdrhistogram.Histogram // of the iterations of a size, if the user wants tails
	send      []byte                  // a message, and Window bytes more; or as many as a window has
	recv      []byte
	sendVec   [][]byte // elements of the messages under way, where they are vectors
	recvVec   [][]byte
	want      []byte      // when validating: what should have come; when rewriting: what is to be sent
	sums      []byte      // likewise, the floats that reductions should give
	cart      *mpi.Cart   // of the neighbor collectives
	comms     []*mpi.Comm // of the pairs of goroutines of rate_mt and latency_mt
	wrong     error       // the first thing that validation has found here
	unwritten error       // why the incomplete report was not written
	besides   []*Report   // of the jobs that ran before this one, if rank 0 has their reports
}

// instruments are what is measured with: a clock in seconds, the bytes that validation sends, the memory of
// this process in bytes, and how long the ranks warm up. Tests bring their
// own.
type instruments struct {
	now      func() float64
	date     func() time.Time
	pattern  func(b []byte, source, sequence int)
	resident func() (int, error)
	warmUp   time.Duration
}

// warmUpTime is how long the ranks warm up before the first size: for some 50 ms after its start Go's runtime
// looks every millisecond, on the rank's own core, whether one of its threads is stuck in a system call,
// which takes 15 µs each time. The figure of a size would hang on how long after the start it is taken.
const warmUpTime = 60 * time.Millisecond

// warmUpRanks has the ranks ask one another whether all have run for long enough, until they have.
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

// newSession makes a session of which rank 0 prints to out.
func newSession(b *Benchmark, o Options, world *mpi.Comm, out io.Writer, with instruments) *session {
	if world.Rank() != 0 {
		out = io.Discard
	}
	return &session{Benchmark: b, Options: o, instruments: with, world: world,
		settings: setting.Environment(), out: &table{out: out}}
}

// outcome measures, and tells what this rank has to say of it at its end (own) from what ends the whole job
// (fatal). Trouble that comes to all ranks together ends none of them: one rank tells of it.
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

// measure runs the benchmark. Errors that are an *OptionError or ErrInvalid come to all ranks together.
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
	// Nothing is allocated while it is measured, so there is nothing to collect but what came before.
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

// agreed refuses ranks that were started with different options: they would wait for messages that nobody
// sends. If rank 0 brings a reason to refuse of its own, all refuse, and rank 0 with that reason. The word
// goes along the line of ranks and back, so that no rank has more than two connections afterwards.
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

// buffer is memory for messages, of the kind that the user wants. All of it goes with the process.
func (s *session) buffer(n int) ([]byte, error) {
	if !s.Registered {
		return buffer(n), nil
	}
	b, err := mpi.Alloc[byte](n)
	clear(b)
	return b, err
}

// buffer is ordinary memory, on pages of its own as peers' benchmarks have it. Every page has been written:
// the kernel backs all those that have not with one and the same page, which is faster to send than any real
// message.
func buffer(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1)
	b = b[skip:][:n:n]
	clear(b)
	return b
}

// iterations are those of a size, with the user's wishes heeded.
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
