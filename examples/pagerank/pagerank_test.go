package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
	"github.com/weft-mpi/weft/internal/testlength"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// reference ranks the pages by a dense matrix, of which column p is what page p gives.
func reference(links []link, damping float64) []float64 {
	n := 0
	for _, l := range links {
		n = max(n, int(l.From)+1, int(l.To)+1)
	}
	gives := make([][]float64, n)
	degree := make([]float64, n)
	for p := range gives {
		gives[p] = make([]float64, n)
	}
	for _, l := range links {
		gives[l.From][l.To]++
		degree[l.From]++
	}
	x := make([]float64, n)
	x[0] = 1 // the result does not depend on the beginning
	for range 400 {
		y := make([]float64, n)
		for p := range x {
			for q := range y {
				share := 1 / float64(n)
				if degree[p] > 0 {
					share = gives[p][q] / degree[p]
				}
				y[q] += x[p] * (damping*share + (1-damping)/float64(n))
			}
		}
		x = y
	}
	return x
}

// ranking reads what the example prints.
func ranking(t *testing.T, stdout string) map[int]float64 {
	t.Helper()
	pages := map[int]float64{}
	last := 2.0
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n")[1:] {
		var page int
		var importance float64
		_, err := fmt.Sscanf(line, "page %d %g", &page, &importance)
		require.NoError(t, err, line)
		require.LessOrEqual(t, importance, last, "in order")
		require.NotContains(t, pages, page)
		pages[page], last = importance, importance
	}
	return pages
}

// The importance of each page is that of the reference, whatever ranks read and have the pages.
func TestTheRankingIsThatOfTheReference(t *testing.T) {
	sample, err := os.ReadFile("testdata/links.txt")
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	var random strings.Builder
	for range 400 {
		fmt.Fprintf(&random, "%d\t%d\n", r.IntN(90), 1+r.IntN(100))
	}
	for name, text := range map[string]string{
		"sample": string(sample), "random": random.String(), "one link": "0 1", "to itself": "# one page\n\n0 0\n",
		"comment": "#" + strings.Repeat("x", 3000) + "\n3 1\n1 3\n0 1\n",
	} {
		links, err := parseLinks([]byte(text))
		require.NoError(t, err)
		numbers := []int{3}
		if name == "random" || testlength.Whole() {
			numbers = append(exampletest.Ranks(), 3)
		}
		for _, ranks := range numbers {
			t.Run(fmt.Sprintf("%s, %d ranks", name, ranks), func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "links.txt"), []byte(text), 0o666))
				stdout, stderr, failure := exampletest.Launch(t, ranks, dir, "-top", "1000", "-damping", "0.8",
					"-tolerance", "1e-13", "links.txt")
				require.NoError(t, failure, stderr)
				want := reference(links, 0.8)
				require.Contains(t, stdout, fmt.Sprintf("%d pages and %d links ranked by %d ranks in ", len(want),
					len(links), ranks))
				got := ranking(t, stdout)
				require.Len(t, got, len(want))
				for page, importance := range want {
					require.InDelta(t, importance, got[page], 1e-9, "page %d", page)
				}
			})
		}
	}
}

func TestWithoutAFile(t *testing.T) {
	var want map[int]float64
	for _, ranks := range []int{1, 4} {
		stdout, stderr, failure := exampletest.Launch(t, ranks, t.TempDir())
		require.NoError(t, failure, stderr)
		got := ranking(t, stdout)
		require.Len(t, got, 3)
		if want == nil {
			want = got
		}
		require.InDeltaMapValues(t, want, got, 1e-9)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"a b":            "pagerank: 2 files: name one",
		"-damping 1":     "pagerank: -damping 1: must be from 0 to less than 1",
		"-damping NaN":   "pagerank: -damping NaN: must be",
		"-tolerance 0":   "pagerank: -tolerance 0: must be from 1e-14 to 1",
		"-top -1":        "pagerank: -top -1: must be 0 or more",
		"none":           "none: no such file",
		"-tolerance x a": "pagerank: invalid value",
	})
	for text, want := range map[string]string{
		"":               "no links",
		"# none\n":       "no links",
		"1 2\n3\n":       "lines from byte 0 on: line 2: 1 fields; a link is the numbers of two pages",
		"1 2 3\n":        "line 1: 3 fields",
		"1 67108864\n":   `line 1: page "67108864": must be a number from 0 to 67108863`,
		"-1 2\n":         `line 1: page "-1": must be`,
		"1 2\n\n x y \n": `line 3: page "x"`,
	} {
		name := filepath.Join(t.TempDir(), "links.txt")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		exampletest.Refused(t, []string{name}, "pagerank: ", want)
	}
}

// Links that were read are in the range that a rank has memory for.
func FuzzParseLinks(f *testing.F) {
	f.Add("0 1\n1 2\n# comment\n\n2\t0\r\n")
	f.Add("67108863 0")
	f.Add("1 2 3\n-1 x")
	f.Fuzz(func(t *testing.T, text string) {
		links, err := parseLinks([]byte(text))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(links), (len(text)+1)/4)
		for _, l := range links {
			require.Less(t, max(l.From, l.To), uint32(maxPages))
		}
	})
}

func TestHelp(t *testing.T) { exampletest.Helps(t, "-damping share") }
