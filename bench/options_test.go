package bench

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
)

func TestNonsenseIsRefused(t *testing.T) {
	for _, c := range []struct {
		benchmark string
		ranks     int
		options   Options
		want      string
	}{
		{"latency", 1, Default, "latency runs on 2 ranks, not on 1"},
		{"bw", 3, Default, "bw runs on 2 ranks, not on 3"},
		{"gather", 1, Default, "gather runs on at least 2 ranks, not on 1"},
		{"mbw_mr", 3, Default, "mbw_mr runs on pairs of ranks: on an even number, not on 3"},
		{"multi_lat", 1, Default, "multi_lat runs on at least 2 ranks, not on 1"},
		{"memory", 1, Default, "memory runs on at least 2 ranks, not on 1"},
		{"memory", 257, Default, "memory runs on at most 256 ranks, not on 257"},
		{"holes", 2, Default, "holes runs on 1 ranks, not on 2"},
		{"reads", 3, Default, "reads runs on 2 ranks, not on 3"},
		{"enlarge", 1, Default, "enlarge runs on 2 ranks, not on 1"},
		{"enlarge", 2, options(func(o *Options) { o.Compare = []string{"x"} }),
			"enlarge has no figures that could be compared"},
		{"reads", 2, plotted("x.svg"), "reads has no figures that could be plotted"},
		{"phases", 1, Default, "phases runs on at least 2 ranks, not on 1"},
		{"latency", 2, sized(8, 4, 1),
			"latency: there is no message size from 8 to 4 bytes; by itself it takes 1 to 4194304"},
		{"latency", 2, sized(-1, 4, 1), "latency: there is no message of -1 bytes"},
		{"latency", 2, sized(0, 0, 1),
			"latency: there is no message size from 1 to 0 bytes; by itself it takes 1 to 4194304"},
		{"reduce", 2, sized(1, 2, 1),
			"reduce: there is no message size from 4 to 2 bytes; by itself it takes 4 to 1048576"},
		{"reduce", 2, sized(6, 8, 1), "reduce: 6 bytes are no whole number of MPI_FLOAT, which has 4"},
		{"latency", 2, sized(1, 1, -1),
			"latency: -1 iterations after 1 for warming up: 0 to 1000000000 are possible"},
		{"latency", 2, sized(1, 1, 2e9),
			"latency: 2000000000 iterations after 1 for warming up: 0 to 1000000000 are possible"},
		{"bw", 2, options(func(o *Options) { o.Warmup = 2e9 }),
			"bw: 0 iterations after 2000000000 for warming up: 0 to 1000000000 are possible"},
		{"bw", 2, options(func(o *Options) { o.Window = 0 }),
			"bw: a window of 0 messages: 1 to 65536 are possible"},
		{"bw", 2, options(func(o *Options) { o.Window = 1 << 20 }),
			"bw: a window of 1048576 messages: 1 to 65536 are possible"},
		{"bw", 2, options(func(o *Options) { o.Digits = 13 }), "bw: 13 decimals: 0 to 12 are possible"},
		{"bw", 2, options(func(o *Options) { o.Digits = -1 }), "bw: -1 decimals: 0 to 12 are possible"},
		{"barrier", 2, options(func(o *Options) { o.Validate = true }),
			"barrier moves no payload that could be validated"},
		{"barrier", 2, options(func(o *Options) { o.Rewrite = true }),
			"barrier moves no payload that could be written anew"},
		{"init", 2, options(func(o *Options) { o.Tails = true }),
			"init has no single iterations whose times could be told"},
		{"strided", 2, options(func(o *Options) { o.Shape = "row" }),
			`no shape is called "row"; there are column, block, indexed, scattered, nested`},
		{"strided", 2, options(func(o *Options) { o.Call = "bcast" }),
			`no call of views is called "bcast"; there are send, isend, sendrecv, put, get`},
		{"exchange", 4, options(func(o *Options) { o.Degree = 4 }),
			"exchange: each of 4 ranks can send to 3 others, not to 4"},
		{"memory", 9, options(func(o *Options) { o.Compare = []string{"x"} }),
			"memory has no figures that could be compared"},
		{"init", 2, options(func(o *Options) { o.Compare = []string{"x"} }),
			"init has no figures that could be compared"},
		{"bw", 2, options(func(o *Options) { o.Window, o.Rewrite = 4096, true }),
			"bw: messages of up to 4194304 bytes take more than " +
				"4 GiB of buffers on a rank; try a smaller -m, -W or -n"},
		{"barrier", 2, plotted("x.svg"), "barrier has no figures that could be plotted"},
		{"init", 2, plotted("x.svg"), "init has no figures that could be plotted"},
		{"latency", 2, plotted("x.gif"), `"x.gif": a plot is a file whose name ends in .svg, .png or .html`},
		{"memory", 2, plotted("svg"), `"svg": a plot is a file whose name ends in .svg, .png or .html`},
		{"gather", 1000, sized(1<<30, 1<<30, 1),
			"gather: messages of up to 1073741824 bytes take more than 4 GiB of buffers on a rank; " +
				"try a smaller -m, -W or -n"},
		{"bw", 2, options(func(o *Options) { o.Window, o.Validate = 4096, true }),
			"bw: messages of up to 4194304 bytes take more than " +
				"4 GiB of buffers on a rank; try a smaller -m, -W or -n"},
	} {
		err := find(c.benchmark).Check(c.options, c.ranks)
		var option *OptionError
		require.ErrorAs(t, err, &option, "%s %+v", c.benchmark, c.options)
		require.EqualError(t, err, c.want)
	}
}

// A window that is not validated is received in one place.
func TestALargeWindowTakesRoomOnlyForValidation(t *testing.T) {
	require.NoError(t, find("bw").Check(options(func(o *Options) { o.Window = 4096 }), 2))
}

func TestEveryBenchmarkAcceptsItsDefaults(t *testing.T) {
	names := map[string]bool{}
	for _, b := range All {
		require.NoError(t, b.Check(Default, b.Start), b.Name)
		require.False(t, names[b.Name], "two are called %s", b.Name)
		names[b.Name] = true
		require.NotEmpty(t, b.Short, b.Name)
		require.True(t, (b.measureSize == nil) != (b.runAll == nil), "%s measures by sizes, or as a whole", b.Name)
	}
}

// plain registers the whole run of a rank, under settings.
func plain(name, benchmark string, o Options, settings ...string) string {
	return launchertest.Body(name, func() error {
		set(settings)
		return find(benchmark).Run(context.Background(), o, Invocation{}, os.Stdout)
	})
}

var (
	twice       = plain("twice", "bcast", sized(1, 4, 2))
	thrice      = plain("thrice", "bcast", sized(1, 4, 3))
	others      = plain("others", "barrier", sized(1, 4, 2))
	connecting  = plain("connecting", "phases", sized(1, 4, 2))
	onTooMany   = plain("on too many", "latency", sized(1, 4, 2))
	nonsensical = plain("nonsensical", "bcast", sized(4, 1, 2))
)

// Ranks with different options would wait for each other in vain.
func TestDifferentOptionsAreRefusedBeforeAnyRankWaits(t *testing.T) {
	for _, c := range []struct {
		groups []group
		name   string // of rank 0's benchmark
	}{
		{[]group{{1, twice}, {1, thrice}}, "bcast"},
		{[]group{{2, twice}, {1, thrice}}, "bcast"},
		{[]group{{1, twice}, {1, thrice}, {1, twice}}, "bcast"},
		{[]group{{1, twice}, {1, nonsensical}}, "bcast"},
		{[]group{{1, others}, {1, twice}}, "barrier"},
		{[]group{{1, connecting}, {2, others}}, "phases"},
	} {
		r := launch(t, c.groups...)
		requireStatus(t, r, 1)
		require.Empty(t, r.Out)
		require.Equal(t, c.name+": the ranks were started with different options\n", told(r))
	}
}

func TestOptionsThatDoNotFitTheJobAreToldOnce(t *testing.T) {
	for _, c := range []struct {
		group group
		want  string
	}{
		{group{3, onTooMany}, "latency runs on 2 ranks, not on 3\n"},
		{group{2, nonsensical},
			"bcast: there is no message size from 4 to 1 bytes; by itself it takes 1 to 1048576\n"},
	} {
		r := launch(t, c.group)
		requireStatus(t, r, 1)
		require.Empty(t, r.Out)
		require.Equal(t, c.want, told(r))
	}
}

// fullDisk takes a number of bytes and then no more.
type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if len(b) > d.room {
		return 0, errors.New("disk full")
	}
	d.room -= len(b)
	return len(b), nil
}

var (
	noTable = launchertest.Body("no table", func() error {
		return find("bcast").Run(context.Background(), sized(1, 4, 2), Invocation{}, &fullDisk{})
	})
	noRow = launchertest.Body("no row", func() error {
		return find("bcast").Run(context.Background(), sized(1, 4, 2), Invocation{}, &fullDisk{150})
	})
	noVerdict = launchertest.Body("no verdict", func() error {
		return find("barrier").Run(context.Background(), sized(1, 4, 2), Invocation{}, &fullDisk{})
	})
)

func TestATableThatCannotBeWrittenFailsTheJob(t *testing.T) {
	for _, name := range []string{noTable, noRow, noVerdict} {
		r := launch(t, group{2, name})
		require.Error(t, r.Failure, name)
		require.Equal(t, 1, strings.Count(r.Err, "writing the table: disk full"), r.Err)
	}
}
