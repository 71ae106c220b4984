// Package bench contains the micro-benchmarks: what they measure, how they count, and the tables that they
// print. All follow OSU's micro-benchmarks, so scripts that parse OSU's tables also parse these.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi"
)

// Options of a run.
type Options struct {
	Min, Max   int    // message sizes in bytes, doubling; Min 0 and Max < 0: the benchmark's own
	Iterations int    // timed, of each size; 0: the benchmark's own
	Warmup     int    // not timed, of each size; < 0: the benchmark's own
	Window     int    // messages under way in bw and bibw
	Vector     int    // elements of a message in bw and bibw; 0 and 1: it is one buffer
	Validate   bool   // every iteration's bytes are checked, with the clock stopped
	Full       bool   // print minimum, maximum and iterations too
	Tails      bool   // print percentiles of single iterations too
	Rewrite    bool   // rewrite the send buffers before every iteration, with the clock stopped
	Digits     int    // decimal places of a figure
	Registered bool   // the buffers come from mpi.Alloc
	Sync       string // what ends an operation on a window: flush, lock or fence
	Shape      string // shape of the elements in strided, one of Shapes
	Call       string // call that moves them, one of Calls
	Threads    int    // pairs of goroutines in rate_mt and latency_mt; 0: the benchmark's own
	Degree     int    // ranks that each rank sends to in exchange; 0: usualDegree

	// Files of rank 0; empty for none.
	Report  string   // receives a Report
	Plot    string   // receives a drawing of the table; the ending selects .svg, .png or .html
	Compare []string // tables to compare and draw with it
	// the reports of the jobs of Benchmark.Besides, in order; "" for a missing one
	Beside []string
}

// Invocation describes a rank's command. It may differ between ranks.
type Invocation struct {
	Version  string            // of weft, for a Report
	Command  []string          // with its arguments, for a Report
	Settings map[string]string // by name, overriding the environment
	Progress io.Writer         // a terminal on which rank 0 shows its progress; nil for none
	// a CPU profile of every rank goes to this file, with the rank after a dot; "" for none
	Profile string
}

// settings returns the settings of a run, with defaults by name.
func (by Invocation) settings(defaults map[string]string) (setting.Values, error) {
	v := setting.Environment()
	for name, text := range by.Settings {
		if err := v.Set(name, text); err != nil {
			return v, err
		}
	}
	for name, text := range defaults {
		if err := v.SetDefault(name, text); err != nil {
			return v, err
		}
	}
	return v, nil
}

// Default are the default options.
var Default = Options{Max: -1, Warmup: -1, Window: 64, Digits: 2, Sync: syncFlush,
	Shape: "column", Call: "send"}

// ErrInvalid means that a validating run received other bytes than were sent.
var ErrInvalid = errors.New("validation failed")

// An OptionError reports invalid options for a benchmark, or for the job in which it runs.
type OptionError struct{ What string }

func (e *OptionError) Error() string { return e.What }

func optionErrorf(text string, args ...any) error { return &OptionError{fmt.Sprintf(text, args...)} }

// Benchmark is one of the names of `weft bench`.
type Benchmark struct {
	Name     string
	Short    string // what it measures, in a line
	Ranks    int    // the number of ranks that it needs; 0: any number, of at least MinRanks
	MinRanks int
	MaxRanks int  // 0: no limit
	Even     bool // the number of ranks must be even
	Start    int  // the number of ranks that it starts by default
	OneSided bool // of windows: it uses Options.Sync
	Strided  bool // of scattered elements: it uses Options.Shape and Options.Call
	// settings by name, one set for each job that runs first and whose report provides figures for this one
	Besides  []map[string]string
	Sparse   bool // of messages to some ranks: it uses Options.Degree
	Unbound  bool // its ranks are not bound to cores: their completion handlers are
	Threaded bool // of several goroutines: it uses Options.Threads

	title       string                                       // of the table, as OSU's parsers look for it
	spec        *tableSpec                                   // of table
	measureSize func(s *session, n int) (measurement, error) // measures one size
	// messages in the receive buffer, most at rank 0; nil: one
	recvCount countFunc
	// messages in the send buffer, most at rank 0; nil: one
	sendCount countFunc
	preamble  func(s *session) string // lines above the header; nil: none
	runAll    func(s *session) error  // prints the whole table, where measureSize is nil
	setup     func(s *session) error  // called before the ranks have communicated
	defaults  map[string]string       // settings by name, unless the user has set them
	handlers  bool                    // completion handlers on all cores, unless the user has set them
}

// unset returns the settings by name that a rank has unless the user has set them.
func (b *Benchmark) unset() (map[string]string, error) {
	if !b.handlers {
		return b.defaults, nil
	}
	cores, err := sys.Affinity()
	all := maps.Clone(b.defaults)
	all[setting.HandlerCores.Name] = topology.FormatCPUList(cores)
	return all, err
}

// tableSpec has the common properties of benchmarks with similar tables.
type tableSpec struct {
	columns  []column
	datatype string // the MPI type of the payload
	element  int    // its size
	min, max int    // message sizes
	axes     axes   // of a plot; zero without a plot
	tails    bool   // the times of single iterations make a distribution
	counts
}

// counts are iterations and warm-up rounds, for small messages and large ones.
type counts struct{ small, smallWarmup, large, largeWarmup int }

// largeMessage is the size above which the counts for large messages apply.
const largeMessage = 8192

func (c counts) of(n int) (timed, warmup int) {
	if n > largeMessage {
		return c.large, c.largeWarmup
	}
	return c.small, c.smallWarmup
}

// tableOf returns the columns of a table: its own, those of validation and of tails in a unit, and the number
// of iterations.
func tableOf(unit string, own ...column) []column {
	columns := append(own, validationColumn)
	if !slices.ContainsFunc(own, func(c column) bool { return c.name == "iterations" }) {
		columns = append(columns, iterationsColumn(inReports))
	}
	return append(columns, tailColumns(unit)...)
}

var (
	pingPong = &tableSpec{
		columns:  tableOf("us", sizeColumn, latencyColumn),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 4 << 20, axes: latencyAxes, tails: true,
		counts: counts{10000, 100, 1000, 10},
	}
	pingPongs = &tableSpec{
		columns:  tableOf("us", append([]column{sizeColumn, latencyColumn}, spreadColumns()...)...),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 4 << 20, axes: latencyAxes, tails: true,
		counts: counts{10000, 100, 1000, 10},
	}
	stream = &tableSpec{
		columns: tableOf("MB/s", sizeColumn,
			column{name: "bandwidth", heading: "Bandwidth (MB/s)", unit: "MB/s", width: 20, of: valueOf}),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 4 << 20, axes: bandwidthAxes, tails: true,
		counts: counts{100, 10, 20, 2},
	}
	rates = &tableSpec{
		columns: tableOf("MB/s", sizeColumn,
			column{name: "bandwidth", heading: "MB/s", unit: "MB/s", width: 20, of: valueOf},
			column{name: "messages", heading: "Messages/s", unit: "1/s", width: 20,
				of: func(c *measurement) float64 { return c.rate }}),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 4 << 20, axes: bandwidthAxes, tails: true,
		counts: counts{100, 10, 100, 10},
	}
	overlaps = &tableSpec{
		columns: tableOf("us", sizeColumn,
			column{name: "overall", heading: "Overall(us)", unit: "us", width: 20, left: 2, of: valueOf},
			column{name: "compute", heading: "Compute(us)", unit: "us", width: 20,
				of: func(c *measurement) float64 { return c.compute }},
			column{name: "communication", heading: "Pure Comm.(us)", unit: "us", width: 20,
				of: func(c *measurement) float64 { return c.baseline }},
			column{name: "overlap", heading: "Overlap(%)", unit: "%", width: 20,
				of: func(c *measurement) float64 { return c.overlap }}),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 4 << 20, axes: latencyAxes, tails: true,
		counts: counts{1000, 100, 100, 10},
	}
	barrierOverlaps = &tableSpec{columns: overlaps.columns[1:], tails: true,
		counts: counts{1000, 100, 100, 10}}
	collectiveOverlaps = &tableSpec{
		columns: overlaps.columns, datatype: "MPI_CHAR", element: 1, min: 1, max: 1 << 20,
		axes: latencyAxes, tails: true,
		counts: counts{1000, 100, 100, 10},
	}
	reductionOverlaps = &tableSpec{
		columns: overlaps.columns, datatype: "MPI_FLOAT", element: 4, min: 4, max: 1 << 20,
		axes: latencyAxes, tails: true,
		counts: counts{1000, 100, 100, 10},
	}
	synchronization = &tableSpec{
		columns: append(append([]column{{name: "latency", heading: "# Avg Latency(us)", unit: "us",
			width: 17, of: valueOf}},
			spreadColumns()...), tailColumns("us")...),
		tails: true, counts: counts{1000, 100, 100, 10},
	}
	collective = &tableSpec{
		columns:  tableOf("us", append([]column{sizeColumn, latencyColumn}, spreadColumns()...)...),
		datatype: "MPI_CHAR", element: 1, min: 1, max: 1 << 20, axes: latencyAxes, tails: true,
		counts: counts{1000, 100, 100, 10},
	}
	reduction = &tableSpec{
		columns:  collective.columns,
		datatype: "MPI_FLOAT", element: 4, min: 4, max: 1 << 20, axes: latencyAxes, tails: true,
		counts: counts{1000, 100, 100, 10},
	}
	startUp = &tableSpec{columns: []column{ // printed in a separate line
		{name: "ranks", form: whole, shown: inReports,
			of: func(c *measurement) float64 { return float64(c.size) }},
		{name: "min", unit: "ms", shown: inReports, of: func(c *measurement) float64 { return c.min }},
		{name: "max", unit: "ms", shown: inReports, of: func(c *measurement) float64 { return c.max }},
		{name: "average", unit: "ms", shown: inReports, of: valueOf},
	}}
	connections = &tableSpec{columns: censusColumns, axes: phaseAxes}
	gaps        = &tableSpec{columns: holeColumns, counts: counts{5, 0, 5, 0}}
	changes     = &tableSpec{columns: enlargeColumns(), counts: counts{15, 0, 15, 0}}
	// settings of cq
	twoEndpoints = map[string]string{setting.Endpoints.Name: "2"}

	copies     = &tableSpec{columns: readColumns()}
	footprints = &tableSpec{columns: memoryColumns(), axes: memoryAxes}
)

// All benchmarks, in the order in which the command lists them.
var All = slices.Concat(pointToPoint, blockingForms(), nonBlockingForms(), sparseForms, ofTheJob)

var pointToPoint = []*Benchmark{
	{Name: "latency", Short: "one-way time of a message, by ping-pong between two ranks", Ranks: 2, Start: 2,
		title: "Latency", spec: pingPong, measureSize: latency},
	{Name: "bw", Short: "one-way bandwidth, with a window of outstanding messages", Ranks: 2, Start: 2,
		title: "Bandwidth", spec: stream, measureSize: bandwidth, recvCount: windowIfValidating},
	{Name: "bibw", Short: "bandwidth in both directions at once", Ranks: 2, Start: 2,
		title: "Bi-Directional Bandwidth", spec: stream, measureSize: bothWays,
		recvCount: windowIfValidating},
	{Name: "mbw_mr", Short: "bandwidth and message rate of several pairs of ranks at once", MinRanks: 2,
		Even: true, Start: 2,
		title: "Multiple Bandwidth / Message Rate", spec: rates, measureSize: messageRate,
		recvCount: windowIfValidating,
		preamble: func(s *session) string {
			return fmt.Sprintf("# [ pairs: %d ] [ window size: %d ]", s.pairs(), s.Window)
		}},
	{Name: "multi_lat", Short: "latency of several pairs of ranks at once", MinRanks: 2, Even: true, Start: 2,
		title: "Multi Latency", spec: pingPongs, measureSize: multiLatency},
	{Name: "latency_mt", Short: "latency when several goroutines of a rank wait for messages", Ranks: 2,
		Start: 2,
		title: "Multi-threaded Latency", Threaded: true, spec: pingPong, measureSize: threadLatency,
		recvCount: func(Options, int, int) int { return receivers }, defaults: manyEndpoints,
		preamble: func(s *session) string {
			if s.Threads > 0 {
				return fmt.Sprintf("# [ pairs of goroutines: %d ]", s.Threads)
			}
			return fmt.Sprintf("# Number of Sender threads: 1\n# Number of Receiver threads: %d", receivers)
		}},
	threadRates,
	{Name: "overlap", Short: "how much of a message's transfer overlaps its receiver's computation",
		Ranks: 2, Start: 2,
		title: "Overlap", spec: overlaps, measureSize: overlapped},
}

// ofTheJob are the benchmarks of a job's memory and start-up time.
var ofTheJob = []*Benchmark{
	{Name: "memory", Short: "memory of all connections and mailboxes of a rank, by number of ranks",
		MinRanks: 2, MaxRanks: 256, Start: 16,
		title: "Memory", spec: footprints, runAll: memory, setup: (*session).takeStock,
		preamble: func(*session) string {
			return "# Bytes of rank 0, all ranks in contact with each other. Large: buffers are large from " +
				"the start."
		},
		Besides: []map[string]string{{setting.Phases.Name: largeSlots}},
		// one connection to each peer, not one for each endpoint of a communicator
		defaults: map[string]string{setting.EagerMax.Name: "1G", setting.Endpoints.Name: "1"}},
	{Name: "phases", Short: "buffers and resident memory of a connection, in each phase", MinRanks: 2,
		Start: 9,
		title: "Phases", spec: connections, runAll: phases, setup: (*session).takeStock,
		preamble: func(*session) string {
			return "# Bytes of a connection, at rank 0. Resident: with its share of what connections " +
				"have in common."
		},
		defaults: map[string]string{setting.ShrinkAfter.Name: "50ms", setting.EagerMax.Name: "1G"}},
	{Name: "enlarge", Short: "time of a change of phase, beside a rendezvous of the same message", Ranks: 2,
		Start: 2,
		title: "Enlarge", spec: changes, runAll: enlarge,
		preamble: func(*session) string {
			return "# A channel's slots grow for a message. First touch: of as much memory as the new " +
				"rings. Message: and a byte back."
		},
		Besides: []map[string]string{{setting.EagerMax.Name: announcedFrom},
			{setting.Fabric.Name: "tcp"},
			{setting.Fabric.Name: "tcp", setting.EagerMax.Name: announcedFrom}},
		defaults: map[string]string{setting.Fabric.Name: "shm", setting.ShrinkAfter.Name: "20ms",
			setting.EagerMax.Name: "1G"}},
	{Name: "reads", Short: "bytes copied for each byte that a peer reads, without and with checksums",
		Ranks: 2, Start: 2,
		title: "Reads", spec: copies, runAll: reads,
		preamble: func(*session) string {
			return "# Bytes copied for each byte that rank 1 reads from rank 0: of a message, and of a " +
				"window."
		},
		Besides: []map[string]string{{setting.Checksum.Name: "on"}},
		defaults: map[string]string{setting.Fabric.Name: "tcp", setting.Checksum.Name: "off",
			setting.EagerMax.Name: "512", setting.Rendezvous.Name: "read"}},
	{Name: "holes", Short: "what a lost lane costs, placed at once and for a receiver that waits", Ranks: 1,
		Start: 1,
		title: "Holes", spec: gaps, runAll: holes,
		preamble: func(*session) string {
			return fmt.Sprintf("# %d Writes over %d lanes of TCP; one is lost. In-order memory: what a "+
				"receiver that waits would hold.", holeMessages, holeLanes)
		}},
	{Name: "cq", Short: "ping-pong beside a stream of 1 MiB messages, by endpoints and completion handlers",
		Ranks: 2, Start: 2, Unbound: true,
		title: "Completion Handlers", spec: handling, runAll: serving, defaults: twoEndpoints, handlers: true,
		preamble: func(*session) string {
			return "# A ping-pong of 8 bytes, beside a stream of 1 MiB messages in all rows but the first. " +
				"Counters: of the handlers of rank 0."
		}},
	{Name: "init", Short: "time of Init", MinRanks: 1, Start: 2,
		title: "Init", spec: startUp, runAll: initialization},
}

type countFunc = func(o Options, rank, ranks int) int

// Limits of the options. They are far above sensible values, and keep a typing error from exhausting the
// memory.
const (
	maxIterations = 1e9
	maxWindow     = 1 << 16
	maxVector     = 1 << 10
	maxDigits     = 12
	maxThreads    = 256
	maxBuffers    = 4 << 30
)

// Check returns an *OptionError for options that are invalid for the benchmark with this number of ranks.
func (b *Benchmark) Check(o Options, ranks int) error {
	low, high := b.sizes(o)
	if err := cmp.Or(o.checkSync(), o.checkViews()); err != nil {
		return err
	}
	switch {
	case b.Ranks > 0 && ranks != b.Ranks:
		return optionErrorf("%s runs on %d ranks, not on %d", b.Name, b.Ranks, ranks)
	case ranks < b.MinRanks:
		return optionErrorf("%s runs on at least %d ranks, not on %d", b.Name, b.MinRanks, ranks)
	case b.MaxRanks > 0 && ranks > b.MaxRanks:
		return optionErrorf("%s runs on at most %d ranks, not on %d", b.Name, b.MaxRanks, ranks)
	case b.Sparse && o.Degree > ranks-1:
		return optionErrorf("%s: each of %d ranks can send to %d others, not to %d", b.Name, ranks, ranks-1,
			o.Degree)
	case b.Even && ranks%2 != 0:
		return optionErrorf("%s runs on pairs of ranks: on an even number, not on %d", b.Name, ranks)
	case o.Iterations < 0 || o.Iterations > maxIterations || o.Warmup > maxIterations:
		return optionErrorf("%s: %d iterations after %d for warming up: 0 to %.0f are possible", b.Name,
			o.Iterations, o.Warmup,
			maxIterations)
	case o.Window < 1 || o.Window > maxWindow:
		return optionErrorf("%s: a window of %d messages: 1 to %d are possible", b.Name, o.Window, maxWindow)
	case o.Vector < 0 || o.Vector > maxVector:
		return optionErrorf("%s: vectors of %d elements: 1 to %d are possible", b.Name, o.Vector, maxVector)
	case o.Vector > 1 && !b.windows():
		return optionErrorf("%s: its messages are not vectors; those of bw, bibw and mbw_mr can be", b.Name)
	case o.Digits < 0 || o.Digits > maxDigits:
		return optionErrorf("%s: %d decimals: 0 to %d are possible", b.Name, o.Digits, maxDigits)
	case b.measureSize == nil && o.Validate:
		return optionErrorf("%s moves no payload that could be validated", b.Name)
	case b.measureSize == nil && o.Rewrite:
		return optionErrorf("%s moves no payload that could be written anew", b.Name)
	case o.Threads < 0 || o.Threads > maxThreads:
		return optionErrorf("%s: %d pairs of goroutines: 1 to %d are possible", b.Name, o.Threads, maxThreads)
	case !b.spec.tails && o.Tails:
		return optionErrorf("%s has no single iterations whose times could be told", b.Name)
	case o.Plot != "" && b.spec.axes == axes{}:
		return optionErrorf("%s has no figures that could be plotted", b.Name)
	case len(o.Compare) > 0 && b.measure() == nil:
		return optionErrorf("%s has no figures that could be compared", b.Name)
	}
	if o.Plot != "" {
		if _, err := plotFormat(o.Plot); err != nil {
			return err
		}
	}
	switch {
	case b.measureSize == nil:
		return nil
	case o.Min < 0:
		return optionErrorf("%s: there is no message of %d bytes", b.Name, o.Min)
	case low > high:
		return optionErrorf("%s: there is no message size from %d to %d bytes; by itself it takes %d to %d",
			b.Name, low, high,
			b.spec.min, b.spec.max)
	case low%b.spec.element != 0:
		return optionErrorf("%s: %d bytes are no whole number of %s, which has %d", b.Name, low,
			b.spec.datatype, b.spec.element)
	}
	others := 4 // the sent message, and the bytes for validation
	if o.Rewrite && b.windows() {
		others += o.Window
	}
	if b.sendCount != nil {
		others += b.sendCount(o, root, ranks)
	}
	if b.Threaded {
		others += o.threads() * (1 + o.Window)
	}
	if high > maxBuffers/(others+b.recvMessages(o, root, ranks)) {
		return optionErrorf("%s: messages of up to %d bytes take more than %d GiB of buffers on a rank; "+
			"try a smaller -m, -W or -n",
			b.Name, high, maxBuffers>>30)
	}
	return nil
}

// windows reports whether there are windows of messages.
func (b *Benchmark) windows() bool { return b.spec == stream || b.spec == rates || b.spec == pairRates }

// test returns the title of the table.
func (b *Benchmark) test() string {
	return fmt.Sprintf("OSU-style weft MPI %s Test v%s", b.title, version)
}

// recvMessages returns the number of messages for which the receive buffer has room.
func (b *Benchmark) recvMessages(o Options, rank, ranks int) int {
	if b.recvCount == nil {
		return 1
	}
	return b.recvCount(o, rank, ranks)
}

// sizes returns the smallest and the largest message size.
func (b *Benchmark) sizes(o Options) (low, high int) {
	low, high = max(o.Min, b.spec.min), o.Max
	if high < 0 {
		high = b.spec.max
	}
	return low, high
}

// Run takes part in a benchmark as one of the ranks of the job for which this process was started. Rank 0
// prints the table to out.
//
// If the options do not fit the job, Run returns an *OptionError at rank 0. If a validating run finds wrong
// data, Run returns ErrInvalid at the ranks that found it. The other ranks then return nil, so that a job
// reports its trouble once.
func (b *Benchmark) Run(ctx context.Context, o Options, by Invocation, out io.Writer) error {
	return b.run(ctx, o, by, out, instruments{now: mpi.Wtime, date: time.Now, pattern: pattern,
		resident: resident, warmUp: warmUpTime})
}

func (b *Benchmark) run(ctx context.Context, o Options, by Invocation, out io.Writer,
	with instruments) error {
	unset, err := b.unset()
	if err != nil {
		return err
	}
	config := mpi.Config{Settings: by.Settings, Defaults: unset}
	settings, err := by.settings(unset)
	if err != nil {
		return err
	}
	began := with.now()
	var own error
	err = mpi.Run(ctx, func(_ context.Context, world *mpi.Comm) (err error) {
		s := newSession(b, o, world, out, with)
		s.by, s.settings = by, settings
		s.initTook = s.now() - began
		stop, err := profile(by.Profile, world.Rank())
		if err != nil {
			return err
		}
		own, err = s.outcome()
		return errors.Join(err, stop())
	}, config)
	return errors.Join(err, own)
}
