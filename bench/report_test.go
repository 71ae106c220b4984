package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var update = flag.Bool("update", false, "write the golden reports anew")

// reported are runs whose reports are golden.
var reported = map[string]golden{
	"latency.json": {benchmark: "latency", options: options(func(o *Options) {
		o.Min, o.Max, o.Iterations, o.Warmup, o.Tails, o.Validate, o.Registered = 8, 16, 10, 0, true, true,
			true
	})},
	"mbw_mr.json":  {benchmark: "mbw_mr", options: sized(1000, 1000, 10)},
	"barrier.json": {benchmark: "barrier", options: options(func(o *Options) { o.Iterations = 10 })},
	"init.json":    {benchmark: "init", options: Default},
	"phases.json":  {benchmark: "phases", options: Default},
	"memory.json":  {benchmark: "memory", options: Default},
}

// reportVariable tells a rank which of them to run, and where the report goes.
const (
	reportVariable = "BENCH_TEST_REPORT"
	folderVariable = "BENCH_TEST_FOLDER"
)

var reporting = worldBody("reporting", func(world *mpi.Comm) error {
	name := os.Getenv(reportVariable)
	g := reported[name]
	g.options.Report = filepath.Join(os.Getenv(folderVariable), name)
	s := newSession(find(g.benchmark), g.options, world, os.Stdout, tick(world))
	s.initTook = 0.012 * float64(world.Rank()+1)
	s.by = Invocation{Version: "v9.9.9", Command: []string{"weft", "bench", g.benchmark, "--json", name}}
	own, fatal := s.outcome()
	if own != nil {
		return own
	}
	return fatal
}, "WEFT_PHASES=640", "WEFT_SHRINK_AFTER=never", "WEFT_FABRIC=tcp", "WEFT_ENDPOINTS=1")

// What differs from machine to machine in a report: values, and lines that are not always there.
var (
	varying   = regexp.MustCompile(`(?m)^    "(host|system|platform|processor|cpus|go)": ".*"`)
	number    = regexp.MustCompile(`(?m)^    "gomaxprocs": [0-9]+$`)
	sometimes = regexp.MustCompile(`(?m)^    "(quota|WEFT_(C|EN)[A-Z_]+)": .*\n`)
)

func TestReportsInJSON(t *testing.T) {
	t.Setenv(folderVariable, t.TempDir())
	for name := range reported {
		t.Setenv(reportVariable, name)
		r := launch(t, group{2, reporting})
		require.NoError(t, r.Failure, r.Err)
		written, err := os.ReadFile(filepath.Join(os.Getenv(folderVariable), name))
		require.NoError(t, err)
		require.Len(t, varying.FindAll(written, -1), 6)
		require.Len(t, number.FindAll(written, -1), 1)
		got := varying.ReplaceAll(written, []byte(`    "$1": "…"`))
		got = sometimes.ReplaceAll(number.ReplaceAll(got, []byte(`    "gomaxprocs": 2`)), nil)
		path := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(path, got, 0o666))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got),
			"go test ./bench -run ReportsInJSON -update writes it anew")
		if g := reported[name]; find(g.benchmark).measure() != nil {
			results, err := readResults(filepath.Join(os.Getenv(folderVariable), name))
			require.NoError(t, err)
			require.False(t, results[0].Partial)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv(folderVariable), ".*"))
	require.NoError(t, err)
	require.Empty(t, left, "temporary files")
}

// partly fails where validation finds a wrong byte, at 4 bytes.
var partly = launchertest.Body("partly", func() error {
	o := mutated
	o.Report = os.Getenv(reportVariable)
	return find("bcast").run(context.Background(), o, Invocation{}, os.Stdout,
		instruments{now: mpi.Wtime, date: time.Now, pattern: wrongByte})
})

func TestAReportOfARunThatFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	t.Setenv(reportVariable, path)
	r := launch(t, group{2, partly})
	requireStatus(t, r, 1)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var report Report
	require.NoError(t, json.Unmarshal(text, &report))
	require.False(t, report.Complete)
	require.Equal(t, "validation failed", report.Error)
	require.Len(t, report.Rows, 3)
	require.Equal(t, true, report.Rows[1]["valid"])
	require.Equal(t, false, report.Rows[2]["valid"])
	results, err := readResults(path)
	require.NoError(t, err)
	require.True(t, results[0].Partial)
	var out bytes.Buffer
	(&table{out: &out}).compare(results, 2)
	require.Contains(t, out.String(), "; rows are missing)")
}

// A run that has measured nothing leaves the file as it was.
func TestNoReportOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	t.Setenv(reportVariable, path)
	r := launch(t, group{1, partly})
	requireStatus(t, r, 1)
	require.Equal(t, "bcast runs on at least 2 ranks, not on 1\n", told(r))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(text))
}

// unwritable is a run whose report cannot be written.
var unwritable = launchertest.Body("unwritable", func() error {
	o := sized(1, 4, 2)
	o.Report = os.Getenv(reportVariable)
	return find("bcast").Run(context.Background(), o, Invocation{}, os.Stdout)
})

func TestAReportThatCannotBeWrittenIsRefusedBeforeAnythingIsMeasured(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "none", "r.json"): "the report cannot be written: " + dir +
			"/none/r.json: no such file or directory\n",
		dir: "the report cannot be written: " + dir + " is a directory\n",
	} {
		t.Setenv(reportVariable, path)
		r := launch(t, group{2, unwritable})
		requireStatus(t, r, 1)
		require.Empty(t, r.Out)
		require.Equal(t, want, told(r))
	}
}
