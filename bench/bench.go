// Package bench is the micro-benchmarks: what they measure, how they count, and the tables they print, all in the manner of OSU's
// micro-benchmarks, so that scripts which read those read these.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weft-mpi/weft/mpi"
)

// Options of a run. Size limits and counts of 0 stand for what the benchmark uses by itself.
type Options struct {
	Min, Max   int  // message sizes in bytes, doubling; Max < 0: the benchmark's own
	Iterations int  // timed, a size
	Warmup     int  // not timed, a size; < 0: the benchmark's own
	Window     int  // messages under way in bw and bibw
	Validate   bool // every iteration's bytes are checked
	Full       bool // minimum, maximum and iterations too
	Digits     int  // decimals of a figure
}

// Default are the options that a benchmark has if the user says nothing.
var Default = Options{Max: -1, Warmup: -1, Window: 64, Digits: 2}

// ErrInvalid says that the numbers that a validating run received were wrong. The table says where.
var ErrInvalid = errors.New("validation failed")

// Benchmark is one of the names of `weft bench`.
type Benchmark struct {
	Name  string
	Short string // what it measures, in a line
	Ranks int    // it needs exactly so many; 0: any number, of at least Least
	Least int
	Start int // ranks that it starts with when the user says nothing

	title  string // of the table, as OSU's parsers look for it
	header string // the line above the rows; a second one for Full
	full   string
	data   string // the MPI type of the payload
	min    int    // sizes
	max    int
	counts counts
	cell   func(s *session, n int) (cell, error) // measures a size; nil for the benchmarks that have no table of sizes
	whole  func(s *session) error
}

// counts are iterations and warm-up rounds, for small messages and large ones.
type counts struct{ small, smallWarmup, large, largeWarmup int }

// largeMessage is the size above which the counts for large messages hold.
const largeMessage = 8192

func (c counts) of(n int) (iterations, warmup int) {
	if n > largeMessage {
		return c.large, c.largeWarmup
	}
	return c.small, c.smallWarmup
}

// cell is what is measured at one size: microseconds or MB/s, and for Full the spread over the ranks.
type cell struct{ value, min, max float64 }

var (
	latencyCounts    = counts{10000, 100, 1000, 10}
	bandwidthCounts  = counts{100, 10, 20, 2}
	collectiveCounts = counts{1000, 100, 100, 10}
)

const (
	latencyHeader    = "# Size         Avg Latency(us)"
	bandwidthHeader  = "# Size        Bandwidth (MB/s)"
	collectiveFull   = "# Size         Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations"
	barrierHeader    = "# Avg Latency(us)"
	barrierFull      = "# Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations"
	pointToPointMax  = 4 << 20
	collectiveMax    = 1 << 20
	smallestOfFloats = 4
)

// All benchmarks, by name as the command lists them.
var All = []*Benchmark{
	{Name: "latency", Short: "time of a message one way, by ping-pong between two ranks", Ranks: 2, Start: 2,
		title: "Latency", header: latencyHeader, data: "MPI_CHAR", min: 1, max: pointToPointMax, counts: latencyCounts, cell: latency},
	{Name: "bw", Short: "bandwidth one way, with a window of messages under way", Ranks: 2, Start: 2,
		title: "Bandwidth", header: bandwidthHeader, data: "MPI_CHAR", min: 1, max: pointToPointMax, counts: bandwidthCounts, cell: bandwidth},
	{Name: "bibw", Short: "bandwidth both ways at once", Ranks: 2, Start: 2,
		title: "Bi-Directional Bandwidth", header: bandwidthHeader, data: "MPI_CHAR", min: 1, max: pointToPointMax,
		counts: bandwidthCounts, cell: bothWays},
	{Name: "barrier", Short: "time of a barrier", Least: 1, Start: 2,
		title: "Barrier Latency", header: barrierHeader, full: barrierFull, counts: collectiveCounts, whole: barrier},
	{Name: "bcast", Short: "time of a broadcast", Least: 2, Start: 2,
		title: "Broadcast Latency", header: latencyHeader, full: collectiveFull, data: "MPI_CHAR", min: 1, max: collectiveMax,
		counts: collectiveCounts, cell: broadcast},
	{Name: "reduce", Short: "time of a reduction to one rank", Least: 2, Start: 2,
		title: "Reduce Latency", header: latencyHeader, full: collectiveFull, data: "MPI_FLOAT", min: smallestOfFloats, max: collectiveMax,
		counts: collectiveCounts, cell: reduce},
	{Name: "allreduce", Short: "time of a reduction to all ranks", Least: 2, Start: 2,
		title: "Allreduce Latency", header: latencyHeader, full: collectiveFull, data: "MPI_FLOAT", min: smallestOfFloats, max: collectiveMax,
		counts: collectiveCounts, cell: allreduce},
	{Name: "gather", Short: "time of a gather to one rank", Least: 2, Start: 2,
		title: "Gather Latency", header: latencyHeader, full: collectiveFull, data: "MPI_CHAR", min: 1, max: collectiveMax,
		counts: collectiveCounts, cell: gather},
	{Name: "memory", Short: "buffers and resident memory of a connection", Least: 3, Start: 8, whole: memory},
	{Name: "init", Short: "time of Init", Least: 1, Start: 2, whole: initialization},
}

// Find gives the benchmark of a name.
func Find(name string) (*Benchmark, bool) {
	for _, b := range All {
		if b.Name == name {
			return b, true
		}
	}
	return nil, false
}

// Check refuses options that make no sense for the benchmark, before any rank is started.
func (b *Benchmark) Check(o Options, ranks int) error {
	low, high := b.sizes(o)
	switch {
	case b.Ranks > 0 && ranks != b.Ranks:
		return fmt.Errorf("%s runs on %d ranks, not on %d", b.Name, b.Ranks, ranks)
	case ranks < b.Least:
		return fmt.Errorf("%s needs at least %d ranks, not %d", b.Name, b.Least, ranks)
	case b.cell != nil && (o.Min < 0 || low > high):
		return fmt.Errorf("%s: no message size from %d to %d; its own are %d to %d", b.Name, low, high, b.min, b.max)
	case o.Iterations < 0 || o.Window < 1:
		return fmt.Errorf("%s: %d iterations with a window of %d: both must be at least 1", b.Name, o.Iterations, o.Window)
	case o.Digits < 0 || o.Digits > 12:
		return fmt.Errorf("%s: %d decimals: 0 to 12 are possible", b.Name, o.Digits)
	case o.Validate && b.cell == nil:
		return fmt.Errorf("%s moves no payload that could be validated", b.Name)
	}
	return nil
}

// sizes are the smallest and the largest message.
func (b *Benchmark) sizes(o Options) (low, high int) {
	low, high = o.Min, o.Max
	if low == 0 {
		low = b.min
	}
	if high < 0 {
		high = b.max
	}
	return max(low, b.min), high
}

// session is one run of a benchmark on one rank.
type session struct {
	*Benchmark
	Options
	world *mpi.Comm
	out   io.Writer // rank 0's table; nothing for the others
	send  []byte
	recv  []byte
	wrong bool
}

// Run takes part in a benchmark as one of the ranks of the job that this process was started in. Rank 0 prints the table to out.
func (b *Benchmark) Run(ctx context.Context, o Options, out io.Writer) error {
	began := mpi.Wtime()
	return mpi.Run(ctx, func(_ context.Context, world *mpi.Comm) error {
		s := &session{Benchmark: b, Options: o, world: world, out: io.Discard}
		if world.Rank() == 0 {
			s.out = out
		}
		if err := b.Check(o, world.Size()); err != nil {
			return err
		}
		if b.Name == "init" {
			return s.initTook((mpi.Wtime() - began) * 1e3)
		}
		if b.whole != nil {
			return b.whole(s)
		}
		return s.table()
	})
}
