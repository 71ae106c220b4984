package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const osuLatency = `
# OSU MPI Latency Test v7.3
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       0.11
8                       0.12
1048576                68.50
`

const osuBandwidth = `# OSU MPI Bandwidth Test v5.9
# Size      Bandwidth (MB/s)
1                       9.50
8                      76.25

# OSU MPI Multiple Bandwidth / Message Rate Test v7.3
# [ pairs: 1 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1                       3.75        3750000.25
`

func TestTablesThatCanBeRead(t *testing.T) {
	results, err := parseTables(osuLatency + osuBandwidth)
	require.NoError(t, err)
	require.Equal(t, []*Result{
		{Title: "OSU MPI Latency Test v7.3", measure: latencyMeasure, sizes: []int{1, 8, 1 << 20},
			values: []float64{0.11, 0.12, 68.5}},
		{Title: "OSU MPI Bandwidth Test v5.9", measure: bandwidthMeasure, sizes: []int{1, 8},
			values: []float64{9.5, 76.25}},
		{Title: "OSU MPI Multiple Bandwidth / Message Rate Test v7.3", measure: bandwidthMeasure,
			sizes: []int{1}, values: []float64{3.75}},
	}, results)
	// Spread, verdicts and tails beside the figure; two headers; a barrier's, which has no sizes.
	results, err = parseTables("# OSU MPI Allreduce Latency Test v7.3\n" +
		"# Size         Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations          Validation    P50 Tail Lat(us)\n" +
		"4   2.50   1.00   4.00   10   Pass   2.00\n" +
		"# OSU MPI Latency Test v5.6\r\n# Size          Latency (us)\r\n# Size       Avg Latency(us)\r\n0   1.5\r\n" +
		"# OSU MPI Barrier Latency Test v7.3\n# Avg Latency(us)\n             0.14\n")
	require.NoError(t, err)
	require.Equal(t, []*Result{
		{Title: "OSU MPI Allreduce Latency Test v7.3", measure: latencyMeasure, sizes: []int{4},
			values: []float64{2.5}},
		{Title: "OSU MPI Latency Test v5.6", measure: latencyMeasure, sizes: []int{0},
			values: []float64{1.5}},
		{Title: "OSU MPI Barrier Latency Test v7.3", measure: latencyMeasure, sizes: []int{0},
			values: []float64{0.14}},
	}, results)
}

// What weft prints can be read, whatever the options.
func TestWeftsOwnTablesCanBeRead(t *testing.T) {
	read := 0
	for _, g := range goldens {
		b := find(g.benchmark)
		if b.measure() == nil {
			continue
		}
		results, err := parseTables(g.want)
		require.NoError(t, err, g.want)
		require.Len(t, results, 1)
		require.Equal(t, b.measure(), results[0].measure)
		require.Equal(t, b.test(), results[0].Title)
		low, high := b.sizes(g.options)
		for n := low; b.measureSize != nil && n <= high; n *= 2 {
			_, ok := results[0].at(n)
			require.True(t, ok, g.want)
		}
		read++
	}
	require.Greater(t, read, 20)
}

func TestFilesThatAreNoTables(t *testing.T) {
	const header = "# Size       Avg Latency(us)\n"
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":          `FILE: no table in it: there is no header such as "# Size         Avg Latency(us)"`,
		"# OSU x\n": `FILE: no table in it: there is no header such as "# Size         Avg Latency(us)"`,
		"\n1   2\n": `FILE:2: neither a comment nor a row below a header such as "# Size         Avg Latency(us)": "1   2"`,
		header:      "FILE:1: a header without rows",
		"\n" + header + "# OSU MPI Latency Test v1\n" + header + "1 2\n": "FILE:2: a header without rows",
		header + "1   2   3\n":                            `FILE:2: 3 fields below a header of 2 columns: "1   2   3"`,
		header + "one   2\n":                              `FILE:2: "one" is no message size`,
		header + "-1   2\n":                               `FILE:2: "-1" is no message size`,
		header + "9999999999999999   2\n":                 `FILE:2: "9999999999999999" is no message size`,
		header + "1   NaN\n":                              `FILE:2: "NaN" is no figure`,
		header + "1   1e999\n":                            `FILE:2: "1e999" is no figure`,
		header + "1   -2\n":                               `FILE:2: "-2" is no figure`,
		header + "1   2\n1   3\n":                         "FILE:3: size 1 after size 1: sizes have to ascend",
		"# Size       Joules\n1   2\n":                    `FILE:1: no column of latencies in us or bandwidths in MB/s: "# Size       Joules"`,
		"# Avg Latency(us)\n1.0\n2.0\n":                   "FILE:3: a second row in a table without sizes",
		"{\n\"schema\": 1}":                               "FILE:2: no report of weft bench: json: cannot unmarshal number into Go struct field Report.schema of type string",
		"{\n\n\"schema\"}":                                "FILE:3: no report of weft bench: invalid character '}' after object key",
		"{\"schema\": \"weft-bench/9\"}":                  `FILE: JSON, but no report of weft bench: its schema is "weft-bench/9", not "weft-bench/1"`,
		"{}":                                              `FILE: JSON, but no report of weft bench: its schema is "", not "weft-bench/1"`,
		`{"schema": "weft-bench/1", "benchmark": "init"}`: `FILE: a report of weft bench without rows of latencies or bandwidths, of "init"`,
		`{"schema": "weft-bench/1"} {`:                    "FILE:1: no report of weft bench: invalid character '{' after top-level value",
		strings.Repeat("#", maxBytes+1):                   "FILE: has more than 16 MiB: no table has",
	} {
		path := filepath.Join(dir, "table")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := readResults(path)
		_, option := errors.AsType[*OptionError](err)
		require.True(t, option, "%.80q: %v", text, err)
		require.EqualError(t, err, strings.ReplaceAll(want, "FILE", path), "%.80q", text)
	}
	_, err := readResults(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "none: no such file or directory")
	_, err = readResults(dir)
	require.ErrorContains(t, err, "is a directory")
}

func FuzzTables(f *testing.F) {
	for _, text := range []string{osuLatency, osuBandwidth, "# Avg Latency(us)\n1.0\n",
		"# Size  MB/s\n1 2\n# Size  MB/s\n", "# Latency (us)  x\n1"} {
		f.Add(text)
	}
	for _, g := range goldens {
		f.Add(g.want)
	}
	f.Fuzz(func(t *testing.T, text string) {
		results, err := parseTables(text)
		require.Equal(t, err == nil, len(results) > 0)
		requireSound(t, results)
	})
}

func FuzzReport(f *testing.F) {
	for _, name := range []string{"latency.json", "barrier.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"schema": "weft-bench/1", "columns": [{"name": "x", "unit": "us"}], "rows": [{"x": 1}, {"x": 2}, null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		results, err := parseReport(text)
		require.Equal(t, err == nil, len(results) > 0)
		requireSound(t, results)
	})
}

// requireSound requires what plots and comparisons rely on.
func requireSound(t *testing.T, results []*Result) {
	for _, r := range results {
		require.NotNil(t, r.measure)
		require.NotEmpty(t, r.sizes)
		require.Len(t, r.values, len(r.sizes))
		for i, n := range r.sizes {
			require.True(t, n >= 0 && n <= maxSize && (i == 0 || n > r.sizes[i-1]))
			require.True(t, figure(r.values[i]) && r.values[i] >= 0)
		}
	}
}
