package bench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"gonum.org/v1/plot"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher/launchertest"
)

// plotted are few measurements of few sizes, and a plot.
func plotted(path string) Options {
	return options(func(o *Options) {
		o.Max, o.Iterations, o.Warmup, o.Window, o.Full, o.Plot = 16, 2, 0, 2,
			true, path
	})
}

// texts are the words in a plot of well-formed XML.
func texts(t *testing.T, path string) (words []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return wordsOf(t, text)
}

func wordsOf(t *testing.T, text []byte) (words []string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return words
		}
		require.NoError(t, err)
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			words = append(words, string(text))
		}
	}
}

// plotVariable tells a rank where to plot.
const plotVariable = "BENCH_TEST_PLOT"

var plotting = launchertest.Body("plotting", func() error {
	name, path, _ := strings.Cut(os.Getenv(plotVariable), "=")
	set([]string{"WEFT_PHASES=640,16384"})
	return find(name).Run(context.Background(), plotted(path), Invocation{}, os.Stdout)
})

func TestAPlotShowsTheTable(t *testing.T) {
	for name, want := range map[string][]string{
		"latency": {"Latency", "Message size (bytes)", "Latency (µs)", "1", "2", "4", "8", "16"},
		"bw":      {"Bandwidth", "Message size (bytes)", "Bandwidth (MB/s)", "1", "16"},
		"allreduce": {"Allreduce Latency", "Message size (bytes)", "Latency (µs)", "average", "minimum",
			"maximum",
			"4", "8", "16"},
		"phases": {"Phases", "Peers", "Memory of a connection (bytes)", "1", "16K", "256K",
			"registered, slots of 640",
			"registered, slots of 16384", "registered, slots of 640, again", "resident, slots of 16384"},
		"memory": {"Memory", "Ranks", "Memory of a rank (bytes)", "2", "64K", "Registered", "Mailboxes"},
	} {
		path := filepath.Join(t.TempDir(), "plot.svg")
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("what was there before ", 1<<14)), 0o600))
		t.Setenv(plotVariable, name+"="+path)
		r := launch(t, group{2, plotting})
		require.NoError(t, r.Failure, r.Err)
		require.True(t, strings.HasPrefix(r.Out, "\n# OSU-style weft MPI "),
			"standard output holds the table")
		require.NotContains(t, r.Out, "svg")
		require.Subset(t, texts(t, path), want)
	}
}

func TestAPlotThatCannotBeWrittenIsRefusedBeforeAnythingIsMeasured(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.svg"), 0o700))
	for path, want := range map[string]string{
		filepath.Join(dir, "none", "plot.svg"): "none/plot.svg: no such file or directory",
		filepath.Join(dir, "folder.svg"):       "folder.svg is a directory",
		filepath.Join(dir, "plot.gif"):         "a plot is a file whose name ends in .svg, .png or .html",
	} {
		t.Setenv(plotVariable, "bw="+path)
		r := launch(t, group{2, plotting})
		requireStatus(t, r, 1)
		require.Empty(t, r.Out)
		require.Equal(t, 1, strings.Count(told(r), "\n"), "one rank tells: %s", r.Err)
		require.Contains(t, told(r), want)
	}
}

// A run that fails leaves the files as they were.
func TestAFailedRunDrawsNothing(t *testing.T) {
	dir := t.TempDir()
	fresh, old := filepath.Join(dir, "fresh.svg"), filepath.Join(dir, "old.svg")
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
	for _, path := range []string{fresh, old} {
		t.Setenv(plotVariable, "latency="+path)
		r := launch(t, group{3, plotting})
		requireStatus(t, r, 1)
		require.Equal(t, "latency runs on 2 ranks, not on 3\n", told(r))
	}
	require.NoFileExists(t, fresh)
	kept, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(kept))
}

// drawn draws the points 1, 2, 4 … of two lines, in two panels.
func drawn(t *testing.T, file string, a axes, points []float64) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), file)
	c := &chart{title: "Any", panels: []*panel{{axes: a}, {axes: bandwidthAxes}}}
	for k, y := range points {
		for _, p := range c.panels {
			p.add("average", float64(int(1)<<k), y)
			p.add("maximum", float64(int(1)<<k), 2*y)
		}
	}
	require.NoError(t, drawTo(c, path))
	return path
}

// drawTo draws a chart as rank 0 does.
func drawTo(c *chart, path string) error {
	o, err := newOutput("plot", path)
	if err != nil {
		return err
	}
	return o.write(func(w io.Writer) error { return c.write(w, path) })
}

// A page contains the plot that a file of SVG is.
func TestChartsOfAnyFigures(t *testing.T) {
	testlength.NotInShort(t)
	for _, points := range [][]float64{
		{1}, {3, 3, 3}, {0.25, 1e-9, 7e12}, {0, 1}, {math.Inf(1), 2}, {math.NaN(), 5},
		{math.SmallestNonzeroFloat64, math.MaxFloat64},
	} {
		for _, a := range []axes{latencyAxes, memoryAxes} {
			page, err := os.ReadFile(drawn(t, "chart.html", a, points))
			require.NoError(t, err)
			svg := page[bytes.Index(page, []byte("<svg")) : bytes.LastIndex(page, []byte("</svg>"))+len("</svg>")]
			words := wordsOf(t, svg)
			require.Subset(t, words, []string{"Any", a.x, a.y, "average", "maximum", bandwidthAxes.y})
			require.NotContains(t, string(page), "NaN")
		}
	}
}

func TestAPNGHasLinesOnWhitePaper(t *testing.T) {
	testlength.NotInShort(t)
	f, err := os.Open(drawn(t, "chart.png", latencyAxes, []float64{1, 4, 3}))
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	box := picture.Bounds()
	require.InDelta(t, float64(box.Dx())*28/24, box.Dy(), 2, "two panels of 24 by 14")
	white, coloured := 0, 0
	for x := range box.Dx() {
		for y := range box.Dy() {
			switch r, g, b, _ := picture.At(x, y).RGBA(); {
			case r&g&b == 0xffff:
				white++
			case r != g || g != b:
				coloured++
			}
		}
	}
	require.Greater(t, white, box.Dx()*box.Dy()*9/10)
	require.Positive(t, coloured)
}

// outside finds what would have a browser ask another host, or leave the page.
var outside = regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\(|<link|<iframe|<img|\b(src|href|action)\s*=|fetch\(|XMLHttpRequest|WebSocket|import\(`)

func TestAPageStandsAlone(t *testing.T) {
	text, err := os.ReadFile(drawn(t, "chart.html", latencyAxes, []float64{1, 4, 3}))
	require.NoError(t, err)
	page := regexp.MustCompile(`xmlns(:xlink)?="[^"]*"`).ReplaceAllString(string(text), "")
	require.Empty(t, outside.FindAllString(page, -1))
	require.Contains(t, page, `default-src 'none'`)
	require.Contains(t, page, `name="viewport"`)
	svg := regexp.MustCompile(`(?s)<svg.*</svg>`).FindString(page)
	require.NoError(t, xml.Unmarshal([]byte(svg), new(struct{})))
	require.Contains(t, svg, "Latency (µs)")
	require.Contains(t, page, "Message size (bytes)   average   maximum")
	require.Contains(t, page, "                   4      3 µs      6 µs")
}

// Names come from files' names, which are anything.
func TestNamesOnAPageAreText(t *testing.T) {
	const name = `</script><script>alert(1)</script>"'&<`
	p := &panel{axes: latencyAxes}
	p.add(name, 1, 1)
	var page bytes.Buffer
	require.NoError(t, (&chart{title: name, panels: []*panel{p}}).write(&page, "x.html"))
	require.NotContains(t, page.String(), "<script>")
	require.Contains(t, page.String(), "&lt;/script&gt;&lt;script&gt;alert(1)")
}

func TestAChartWithoutFigures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.svg")
	p := &panel{axes: latencyAxes}
	p.add("average", 1, 0)
	p.add("average", 0, 1)
	require.EqualError(t, drawTo(&chart{title: "Nothing", panels: []*panel{p}}, path),
		"the plot cannot be written: no figure is above zero")
	require.NoFileExists(t, path)
}

func TestAChartOnAFullDisk(t *testing.T) {
	link := filepath.Join(t.TempDir(), "full.svg")
	require.NoError(t, os.Symlink("/dev/full", link))
	p := &panel{axes: latencyAxes}
	p.add("average", 1, 1)
	require.ErrorContains(t, drawTo(&chart{title: "Nothing", panels: []*panel{p}}, link),
		"the plot cannot be written: write ")
}

func TestTicks(t *testing.T) {
	labels := func(ticker plot.Ticker, low, high float64) (text []string) {
		for _, tick := range ticker.Ticks(math.Log2(low), math.Log2(high)) {
			require.True(t, math.Log2(low) <= tick.Value && tick.Value <= math.Log2(high))
			if tick.Label != "" {
				text = append(text, tick.Label)
			}
		}
		return text
	}
	require.Equal(t, []string{"1", "2", "4", "8"}, labels(binaryTicks{}, 0.7, 11))
	require.Equal(t, []string{"512", "1K", "2K"}, labels(binaryTicks{}, 400, 2048))
	require.Equal(t, []string{"512K", "1M", "2M"}, labels(binaryTicks{}, 400<<10, 3<<20))
	require.Equal(t, []string{"1", "4", "16", "64", "256", "1K", "4K", "16K", "64K", "256K", "1M", "4M"},
		labels(binaryTicks{}, 0.7, 6<<20))
	require.Equal(t, []string{"0.5", "1", "2", "5", "10"}, labels(decimalTicks{}, 0.3, 12))
	require.Equal(t, []string{"0.01", "0.1", "1", "10", "100", "1000"}, labels(decimalTicks{}, 0.01, 2000))
}

func TestPlotsAreOfKnownFormats(t *testing.T) {
	for _, path := range []string{"", "svg", "x.SVG", "x.svg.gz", "x.pdf", "x.svg/", ".png.", "x"} {
		_, err := plotFormat(path)
		_, option := errors.AsType[*OptionError](err)
		require.True(t, option, "%q: %v", path, err)
	}
}
