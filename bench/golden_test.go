package bench

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// A golden table is what a benchmark prints with a clock that moves by one millisecond at rank 0, two at rank
// 1 and so on, whenever it is read.
type golden struct {
	benchmark string
	ranks     int
	options   Options
	want      string
}

// sized are options for a few iterations of a few sizes.
func sized(low, high, iterations int) Options {
	return options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup = low, high, iterations, 1 })
}

var goldens = []golden{
	{"latency", 2, sized(1, 4, 10), `
# OSU-style weft MPI Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
1                        50.00
2                        50.00
4                        50.00
`},
	{"latency", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup, o.Digits, o.Full = 1024, 1024, 3, 0, 4, true }), `
# OSU-style weft MPI Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
1024                  166.6667
`},
	// The clock stands still while bytes are validated. To stop it and to start it is a read each: one of the
	// two counts.
	{"latency", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup, o.Validate = 2, 2, 10, 1, true }), `
# OSU-style weft MPI Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)          Validation
2                      1050.00                Pass
`},
	// The count of OSU: one millisecond over twice as many iterations as a large message has.
	{"latency", 2, options(func(o *Options) { o.Min, o.Max, o.Digits, o.Warmup = 16384, 16384, 3, 0 }), `
# OSU-style weft MPI Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
16384                    0.500
`},
	{"overlap", 2, sized(1024, 2048, 10), `
# OSU-style weft MPI Overlap Test v0.1.0
# Datatype: MPI_CHAR.
# Size           Overall(us)         Compute(us)      Pure Comm.(us)          Overlap(%)
1024                   1000.00             1000.00             1000.00              100.00
2048                   1000.00             1000.00             1000.00              100.00
`},
	{"mbw_mr", 4, sized(1, 2, 10), `
# OSU-style weft MPI Multiple Bandwidth / Message Rate Test v0.1.0
# Datatype: MPI_CHAR.
# [ pairs: 2 ] [ window size: 64 ]
# Size                    MB/s          Messages/s
1                         0.85           853333.33
2                         1.71           853333.33
`},
	{"mbw_mr", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup, o.Window, o.Digits = 1000, 1000, 10, 0, 2, 0 }), `
# OSU-style weft MPI Multiple Bandwidth / Message Rate Test v0.1.0
# Datatype: MPI_CHAR.
# [ pairs: 1 ] [ window size: 2 ]
# Size                    MB/s          Messages/s
1000                        20               20000
`},
	{"multi_lat", 4, sized(1, 2, 10), `
# OSU-style weft MPI Multi Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
1                       125.00
2                       125.00
`},
	{"latency_mt", 2, sized(8, 8, 10), `
# OSU-style weft MPI Multi-threaded Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Number of Sender threads: 1
# Number of Receiver threads: 2
# Size         Avg Latency(us)
8                        50.00
`},
	{"latency_mt", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup, o.Threads, o.Tails = 8, 8, 10, 1, 1, true }), `
# OSU-style weft MPI Multi-threaded Latency Test v0.1.0
# Datatype: MPI_CHAR.
# [ pairs of goroutines: 1 ]
# Size         Avg Latency(us)    P50 Tail Lat(us)    P90 Tail Lat(us)    P99 Tail Lat(us)  P99.9 Tail Lat(us)    Max Tail Lat(us)
8                       550.00              500.22              500.22              500.22              500.22              500.22
`},
	{"rate_mt", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup, o.Threads = 8, 8, 10, 1, 1 }), `
# OSU-style weft MPI Multi-threaded Message Rate Test v0.1.0
# Datatype: MPI_CHAR.
# [ pairs of goroutines: 1 ] [ window size: 64 ]
# Size      Million messages/s
8                         0.64
`},
	{"bw", 2, sized(1, 2, 10), `
# OSU-style weft MPI Bandwidth Test v0.1.0
# Datatype: MPI_CHAR.
# Size        Bandwidth (MB/s)
1                         0.64
2                         1.28
`},
	{"bibw", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Warmup, o.Window = 1000, 1000, 10, 0, 2 }), `
# OSU-style weft MPI Bi-Directional Bandwidth Test v0.1.0
# Datatype: MPI_CHAR.
# Size        Bandwidth (MB/s)
1000                     40.00
`},
	{"barrier", 2, sized(0, -1, 3), `
# OSU-style weft MPI Barrier Latency Test v0.1.0
# Avg Latency(us)
          1500.00
`},
	{"barrier", 2, options(func(o *Options) { o.Iterations, o.Full = 3, true }), `
# OSU-style weft MPI Barrier Latency Test v0.1.0
# Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations
          1500.00             1000.00             2000.00           3
`},
	{"bcast", 2, sized(1, 2, 3), `
# OSU-style weft MPI Broadcast Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
1                      1500.00
2                      1500.00
`},
	{"bcast", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Full, o.Validate = 2, 2, 3, true, true }), `
# OSU-style weft MPI Broadcast Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations          Validation
2                      1500.00             1000.00             2000.00           3                Pass
`},
	{"reduce", 2, sized(0, 8, 3), `
# OSU-style weft MPI Reduce Latency Test v0.1.0
# Datatype: MPI_FLOAT.
# Size         Avg Latency(us)
4                      1500.00
8                      1500.00
`},
	{"allreduce", 2, options(func(o *Options) { o.Max, o.Iterations, o.Validate = 4, 3, true }), `
# OSU-style weft MPI Allreduce Latency Test v0.1.0
# Datatype: MPI_FLOAT.
# Size         Avg Latency(us)          Validation
4                      1500.00                Pass
`},
	// A round of ten takes one millisecond at rank 0, counted to three digits.
	{"latency", 2, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Tails, o.Digits = 8, 8, 10, true, 0 }), `
# OSU-style weft MPI Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)    P50 Tail Lat(us)    P90 Tail Lat(us)    P99 Tail Lat(us)  P99.9 Tail Lat(us)    Max Tail Lat(us)
8                          550                 500                 500                 500                 500                 500
`},
	{"bw", 2, options(func(o *Options) {
		o.Min, o.Max, o.Iterations, o.Tails, o.Rewrite, o.Window = 1000, 1000, 10, true, true, 2
	}), `
# OSU-style weft MPI Bandwidth Test v0.1.0
# Datatype: MPI_CHAR.
# Size        Bandwidth (MB/s)   P50 Tail BW(MB/s)   P90 Tail BW(MB/s)   P99 Tail BW(MB/s)  P99.9 Tail BW(MB/s)   Min Tail BW(MB/s)
1000                      0.95                1.00                1.00                1.00                 1.00                1.00
`},
	// A quarter of the times is rank 0's, and so on.
	{"allreduce", 4, options(func(o *Options) {
		o.Max, o.Iterations, o.Validate, o.Full, o.Tails, o.Digits = 4, 10, true, true, true, 0
	}), `
# OSU-style weft MPI Allreduce Latency Test v0.1.0
# Datatype: MPI_FLOAT.
# Size         Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations          Validation    P50 Tail Lat(us)    P90 Tail Lat(us)    P99 Tail Lat(us)  P99.9 Tail Lat(us)    Max Tail Lat(us)
4                         2500                1000                4000          10                Pass                2001                4002                4002                4002                4002
`},
	{"mbw_mr", 4, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Tails, o.Window = 1000, 1000, 10, true, 2 }), `
# OSU-style weft MPI Multiple Bandwidth / Message Rate Test v0.1.0
# Datatype: MPI_CHAR.
# [ pairs: 2 ] [ window size: 2 ]
# Size                    MB/s          Messages/s   P50 Tail BW(MB/s)   P90 Tail BW(MB/s)   P99 Tail BW(MB/s)  P99.9 Tail BW(MB/s)   Min Tail BW(MB/s)
1000                      2.42             2424.24                4.00                2.00                2.00                 2.00                2.00
`},
	{"multi_lat", 4, options(func(o *Options) { o.Min, o.Max, o.Iterations, o.Tails, o.Full = 8, 8, 10, true, true }), `
# OSU-style weft MPI Multi Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations    P50 Tail Lat(us)    P90 Tail Lat(us)    P99 Tail Lat(us)  P99.9 Tail Lat(us)    Max Tail Lat(us)
8                      1375.00              550.00             2200.00          10             1000.45             2000.90             2000.90             2000.90             2000.90
`},
	{"barrier", 2, options(func(o *Options) { o.Iterations, o.Full, o.Tails, o.Digits = 10, true, true, 0 }), `
# OSU-style weft MPI Barrier Latency Test v0.1.0
# Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations    P50 Tail Lat(us)    P90 Tail Lat(us)    P99 Tail Lat(us)  P99.9 Tail Lat(us)    Max Tail Lat(us)
             1500                1000                2000          10                1000                2001                2001                2001                2001
`},
	{"gather", 2, sized(64, 64, 3), `
# OSU-style weft MPI Gather Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
64                     1500.00
`},
	{"init", 2, Default, `
# OSU-style weft MPI Init Test v0.1.0
nprocs: 2, min: 12 ms, max: 24 ms, avg: 18 ms
`},
}

// tick is a clock that moves by a rank's share whenever it is read, a pattern that is the right one, and a
// process that holds 1 MiB and each registered byte three times.
func tick(world *mpi.Comm) instruments {
	var reads atomic.Int64 // goroutines of a rank read it at once
	return instruments{
		pattern: pattern,
		date:    func() time.Time { return time.Date(2026, 3, 14, 15, 9, 26, 535e6, time.UTC) },
		now: func() float64 {
			return float64(reads.Add(1)*int64(world.Rank()+1)) / 1000
		},
		resident: func() (int, error) { return 1<<20 + 3*world.Stats().Registered, nil },
	}
}

// separator stands between the tables of one job.
const separator = "== next\n"

var goldenBody = worldBody("golden", func(world *mpi.Comm) error {
	for _, g := range goldensOn(world.Size()) {
		s := newSession(find(g.benchmark), g.options, world, os.Stdout, tick(world))
		s.initTook = 0.012 * float64(world.Rank()+1)
		if own, fatal := s.outcome(); own != nil || fatal != nil {
			return fmt.Errorf("%s %+v: %w, %w", g.benchmark, g.options, own, fatal)
		}
		s.out.printf(separator)
	}
	return nil
})

func goldensOn(ranks int) (on []golden) {
	for _, g := range goldens {
		if g.ranks == ranks {
			on = append(on, g)
		}
	}
	return on
}

// Figures that fill their columns stay apart, so that a parser tells one from the next.
func TestRowWideFigures(t *testing.T) {
	var out bytes.Buffer
	columns := []column{sizeColumn, latencyColumn, validationColumn}
	(&table{out: &out}).row(columns, []float64{12345678901, 1 << 62, 1}, &Options{Digits: 2, Validate: true})
	require.Equal(t, "12345678901 4611686018427387904.00                Pass\n", out.String())
}

func TestTablesAreOSUs(t *testing.T) {
	compared := 0
	for _, ranks := range []int{2, 4} {
		r := launch(t, group{ranks, goldenBody})
		require.NoError(t, r.Failure, r.Err)
		require.Empty(t, told(r))
		got := strings.SplitAfter(r.Out, separator)
		require.Len(t, got, len(goldensOn(ranks))+1)
		for i, g := range goldensOn(ranks) {
			assert.Equal(t, g.want, strings.TrimSuffix(got[i], separator), "%s %+v", g.benchmark, g.options)
			compared++
		}
	}
	require.Equal(t, len(goldens), compared)
}

func TestCountsAreOSUs(t *testing.T) {
	for _, c := range []struct {
		benchmark     string
		n             int
		timed, warmup int
	}{
		{"latency", 8192, 10000, 100},
		{"latency", 8193, 1000, 10},
		{"multi_lat", 1, 10000, 100},
		{"bw", 8192, 100, 10},
		{"bibw", 8193, 20, 2},
		{"mbw_mr", 8192, 100, 10},
		{"mbw_mr", 4 << 20, 100, 10},
		{"barrier", 0, 1000, 100},
		{"allreduce", 8192, 1000, 100},
		{"bcast", 8193, 100, 10},
	} {
		s := &session{Benchmark: find(c.benchmark), Options: Default}
		timed, warmup := s.iterations(c.n)
		require.Equal(t, []int{c.timed, c.warmup}, []int{timed, warmup}, "%s of %d bytes", c.benchmark, c.n)
	}
	for name, sizes := range map[string][2]int{
		"latency": {1, 4 << 20}, "bw": {1, 4 << 20}, "mbw_mr": {1, 4 << 20}, "gather": {1, 1 << 20},
		"reduce": {4, 1 << 20},
	} {
		low, high := find(name).sizes(Default)
		require.Equal(t, sizes, [2]int{low, high}, name)
	}
}

// Users' scripts read the tables with expressions like these, anchored on both ends of a line.
func TestParsersFindWhatTheyLookFor(t *testing.T) {
	title := regexp.MustCompile(`(?m)^# OSU.*Test (v[0-9\.]+)$`)
	datatype := regexp.MustCompile(`(?m)^# Datatype: (\S+)\.$`)
	rateRow := regexp.MustCompile(`(?m)^\s*([0-9]+)\s+([0-9\.]+)\s+([0-9\.]+)\s*$`)
	row := regexp.MustCompile(`(?m)^\s*([0-9]+)\s+([0-9\.]+)\s*$`)
	overlapRow := regexp.MustCompile(`(?m)^\s*([0-9]+)\s+([0-9\.]+)\s+[0-9\.]+\s+[0-9\.]+\s+[0-9\.]+\s*$`)
	headers := map[*tableSpec]*regexp.Regexp{
		overlaps:        regexp.MustCompile(`(?m)^# Size\s+Overall\(us\)\s+Compute\(us\)\s+Pure Comm\.\(us\)\s+Overlap\(%\)\s*$`),
		pingPongs:       regexp.MustCompile(`(?m)^#\s+Size\s+Avg Latency\(us\)\s*$`),
		pingPong:        regexp.MustCompile(`(?m)^#\s+Size\s+Avg Latency\(us\)\s*$`),
		collective:      regexp.MustCompile(`(?m)^#\s+Size\s+Avg Latency\(us\)\s*$`),
		reduction:       regexp.MustCompile(`(?m)^#\s+Size\s+Avg Latency\(us\)\s*$`),
		stream:          regexp.MustCompile(`(?m)^# Size\s+Bandwidth \(MB/s\)\s*$`),
		rates:           regexp.MustCompile(`(?m)^# Size\s+MB/s\s+Messages/s\s*$`),
		synchronization: regexp.MustCompile(`(?m)^# Avg Latency\(us\)\s*$`),
		pairRates:       regexp.MustCompile(`(?m)^# Size\s+Million messages/s\s*$`),
		startUp:         regexp.MustCompile(`(?m)^nprocs: \d+, min: \d+ ms, max: \d+ ms, avg: \d+ ms$`),
	}
	for _, g := range goldens {
		b := find(g.benchmark)
		require.Equal(t, "v"+version, title.FindStringSubmatch(g.want)[1], g.want)
		if b.spec.datatype != "" {
			require.Equal(t, b.spec.datatype, datatype.FindStringSubmatch(g.want)[1], g.want)
		}
		require.True(t, strings.HasPrefix(g.want, "\n# "), g.want)
		if g.options.Validate || g.options.Full || g.options.Tails {
			continue // columns that were asked for are in the way of the end of the line
		}
		require.Regexp(t, headers[b.spec], g.want)
		if b.measureSize != nil {
			low, high := b.sizes(g.options)
			rows := row.FindAllStringSubmatch(g.want, -1)
			switch b.spec {
			case rates:
				rows = rateRow.FindAllStringSubmatch(g.want, -1)
			case overlaps:
				rows = overlapRow.FindAllStringSubmatch(g.want, -1)
			}
			for n := low; n <= high; n *= 2 {
				require.NotEmpty(t, rows, g.want)
				require.Equal(t, strconv.Itoa(n), rows[0][1])
				rows = rows[1:]
			}
			require.Empty(t, rows)
		}
	}
}

// Scripts that split lines into words take a line for a row if its first word is a number, or its only one.
func TestWordsOfALineTellARow(t *testing.T) {
	for _, g := range goldens {
		b := find(g.benchmark)
		found := 0
		for line := range strings.Lines(g.want) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			if _, err := strconv.ParseFloat(words[0], 64); err != nil {
				continue
			}
			found++
			if len(words) > 1 && b.measureSize != nil {
				_, err := strconv.ParseFloat(words[1], 64)
				require.NoError(t, err, line)
			}
		}
		low, high := b.sizes(g.options)
		want := 0
		for n := low; b.measureSize != nil && n <= high; n *= 2 {
			want++
		}
		if b.spec == synchronization {
			want = 1
		}
		require.Equal(t, want, found, g.want)
	}
}
