package bench

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files puts texts into files of a folder of their own, and gives the folder.
func files(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// compared puts texts into files of a folder of their own, goes there, and compares the files at paths.
func compared(t *testing.T, digits int, texts map[string]string, paths ...string) string {
	t.Helper()
	t.Chdir(files(t, texts))
	var out bytes.Buffer
	require.NoError(t, Compare(paths, digits, "", &out))
	return out.String()
}

func TestCompare(t *testing.T) {
	const weft = `
# OSU-style weft MPI Latency Test v0.1.0
# Datatype: MPI_CHAR.
# Size         Avg Latency(us)
1                         0.10
8                         0.06
16                        0.00
`
	dir := files(t, map[string]string{"weft.txt": weft + strings.Replace(osuBandwidth, "76.25", "152.50",
		1), "osu.txt": osuLatency + osuBandwidth, "osu.out": osuLatency})
	t.Chdir(dir)
	var out bytes.Buffer
	require.NoError(t, Compare([]string{"weft.txt", "osu.txt", "osu.out"}, 2, "plot.svg", &out))
	require.Equal(t, `
# Latency (us); a ratio above 1: weft is ahead
# weft: OSU-style weft MPI Latency Test v0.1.0 (weft.txt)
# osu: OSU MPI Latency Test v7.3 (osu.txt)
# osu (2): OSU MPI Latency Test v7.3 (osu.out)
# Size                    weft                 osu     ratio             osu (2)     ratio
1                         0.10                0.11     1.100                0.11     1.100
8                         0.06                0.12     2.000                0.12     2.000
16                        0.00                   -         -                   -         -
1048576                      -               68.50         -               68.50         -

# Bandwidth (MB/s); a ratio above 1: weft is ahead
# weft: OSU MPI Bandwidth Test v5.9 (weft.txt)
# weft (2): OSU MPI Multiple Bandwidth / Message Rate Test v7.3 (weft.txt)
# osu: OSU MPI Bandwidth Test v5.9 (osu.txt)
# osu (2): OSU MPI Multiple Bandwidth / Message Rate Test v7.3 (osu.txt)
# Size                    weft            weft (2)     ratio                 osu     ratio             osu (2)     ratio
1                         9.50                3.75     2.533                9.50     1.000                3.75     2.533
8                       152.50                   -         -               76.25     2.000                   -         -
`, out.String())
	require.Subset(t, texts(t, "plot.svg"), []string{"Comparison", "Latency (µs)", "Bandwidth (MB/s)",
		"weft", "osu", "osu (2)"})
}

func TestCompareBarriers(t *testing.T) {
	printed := compared(t, 3, map[string]string{
		"a": "# OSU MPI Barrier Latency Test v7.3\n# Avg Latency(us)\n             0.14\n",
		"b": "# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations\n 0.28   0.2   0.3  1000\n",
	}, "a", "b")
	require.Equal(t, `
# Latency (us); a ratio above 1: a is ahead
# a: OSU MPI Barrier Latency Test v7.3 (a)
# b: OSU MPI Barrier Latency Test v7.4 (b)
# Size                       a                   b     ratio
-                        0.140               0.280     2.000
`, printed)
	require.EqualError(t, Compare([]string{"a", "b"}, 3, "x.svg", io.Discard),
		"the plot cannot be written: no figure is above zero")
	require.NoFileExists(t, "x.svg")
}

// Figures that fill their columns stay apart, so that a reader and a parser tell one from the next.
func TestCompareWideFigures(t *testing.T) {
	printed := compared(t, 4, map[string]string{
		"a": "# OSU MPI Latency Test v7.3\n# Size          Avg Latency(us)\n1 0.5000\n12345678901 1\n",
		"b": "# OSU MPI Latency Test v7.3\n# Size          Avg Latency(us)\n1 1152921504606846976\n12345678901 1\n",
	}, "a", "b")
	rows := strings.Split(printed, "\n")[5:7]
	require.Equal(t, [][]string{
		{"1", "0.5000", "1152921504606846976.0000", "2305843009213693952.000"},
		{"12345678901", "1.0000", "1.0000", "1.000"},
	}, [][]string{strings.Fields(rows[0]), strings.Fields(rows[1])})
}

func TestComparisonsThatMakeNoSense(t *testing.T) {
	t.Chdir(files(t, map[string]string{"latency": osuLatency, "bandwidth": osuBandwidth, "junk": "junk"}))
	for _, c := range []struct {
		paths  []string
		digits int
		plot   string
		want   string
	}{
		{nil, 2, "", "two files at least are needed to compare, not 0"},
		{[]string{"latency"}, 2, "", "two files at least are needed to compare, not 1"},
		{[]string{"latency", "latency"}, 13, "", "13 decimals: 0 to 12 are possible"},
		{[]string{"latency", "latency"}, 2, "x.gif", `"x.gif": a plot is a file whose name ends in .svg, .png or .html`},
		{[]string{"latency", "bandwidth"}, 2, "", `bandwidth has no table of what latency has: "OSU MPI Latency Test v7.3"`},
		{[]string{"latency", "junk"}, 2, "", `junk:1: neither a comment nor a row below a header such as "# Size         Avg Latency(us)": "junk"`},
		{[]string{"latency", "none"}, 2, "", "a table to compare with: open none: no such file or directory"},
	} {
		var out bytes.Buffer
		err := Compare(c.paths, c.digits, c.plot, &out)
		require.EqualError(t, err, c.want)
		require.Empty(t, out.String())
	}
}

// Names that a plot has room for, and that differ.
func TestNamesOfResults(t *testing.T) {
	require.Equal(t, strings.Repeat("ä", 32), shortened(strings.Repeat("ä", 32)))
	require.Equal(t, strings.Repeat("ä", 15)+"…"+strings.Repeat("ö", 16),
		shortened(strings.Repeat("ä", 16)+strings.Repeat("ö", 17)))
	results := []*Result{{Name: "a"}, {Name: "a"}, {Name: "a (2)"}, {Name: "a"}}
	taken := map[string]bool{}
	for _, r := range named(results) {
		require.False(t, taken[r.Name], r.Name)
		taken[r.Name] = true
	}
}

// What a file of somebody else says is shown, and does nothing to the terminal.
func TestCompareShowsNoControlCharacters(t *testing.T) {
	table := func(title string) string {
		return "# OSU MPI " + title +
			" Test v7.3\n# Avg Latency(us)\n 0.14\n"
	}
	printed := compared(t, 3, map[string]string{"a": table("\x1b[2J\x1b]0;owned\a\u202eBarrier Latency"),
		"b\x1b[31m": table("Barrier Latency")}, "a", "b\x1b[31m")
	require.Contains(t, printed, `# a: OSU MPI \x1b[2J\x1b]0;owned\a\u202eBarrier Latency Test v7.3 (a)`)
	require.Contains(t, printed, `# b\x1b[31m: `)
	require.NotContains(t, printed, "\x1b")
}
