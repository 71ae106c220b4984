package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// reference is the algorithm on one rank, in the plainest way.
func reference(all points, k int) (labels []int, squares float64) {
	var centers points
	centers.dimensions = all.dimensions
	for range k {
		best, far := 0, -1.0
		for i := range all.count() {
			if _, squared := centers.nearest(all.point(i)); squared > far {
				best, far = i, squared
			}
		}
		centers.at = append(centers.at, all.point(best)...)
	}
	labels = make([]int, all.count())
	for moved := true; moved; {
		moved, squares = false, 0
		sums, counts := make([]float64, len(centers.at)), make([]float64, k)
		for i := range all.count() {
			label, squared := centers.nearest(all.point(i))
			moved = moved || label != labels[i]
			labels[i] = label
			squares += squared
			counts[label]++
			for d, x := range all.point(i) {
				sums[label*all.dimensions+d] += x
			}
		}
		for i := range centers.at {
			centers.at[i] = sums[i] / counts[i/all.dimensions]
		}
	}
	return labels, squares
}

func TestTheClustersAreThoseOfOneRank(t *testing.T) {
	labels, squares := reference(scattered(problem{Points: 3000, Dimensions: 3, K: 5}, 9), 5)
	for _, ranks := range exampletest.Ranks() {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			dir := t.TempDir()
			stdout, stderr, err := exampletest.Launch(t, ranks, dir, "-points", "3000", "-dimensions", "3", "-k",
				"5", "-seed", "9", "-output", "labels.txt")
			require.NoError(t, err, stderr)
			require.Contains(t, stdout, "; settled and verified\n")
			var got float64
			_, after, _ := strings.Cut(stdout, "sum of squares ")
			_, err = fmt.Sscanf(after, "%g;", &got)
			require.NoError(t, err, stdout)
			require.InEpsilon(t, squares, got, 1e-8)
			written, err := os.ReadFile(filepath.Join(dir, "labels.txt"))
			require.NoError(t, err)
			require.Equal(t, strings.Trim(fmt.Sprint(labels), "[]"), strings.Join(strings.Fields(string(written)), " "))
		})
	}
}

func TestPointsOfAFile(t *testing.T) {
	file, err := filepath.Abs("testdata/points.csv")
	require.NoError(t, err)
	stdout, stderr, err := exampletest.Launch(t, 3, t.TempDir(), "-input", file, "-k", "3")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, ": 10 points around ["), stdout)
}

func TestMoreRanksThanPoints(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in"), []byte("1\n1\n7\n"), 0o666))
	stdout, stderr, err := exampletest.Launch(t, 4, dir, "-input", "in", "-k", "3")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "cluster 2: 0 points around [1]") // two points are equal, so one center has none
	require.Contains(t, stdout, "settled and verified")
}

func TestItSaysWhenTheClustersHaveNotSettled(t *testing.T) {
	stdout, stderr, status := exampletest.Alone(t, t.TempDir(), "-rounds", "1")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "; not settled: use more -rounds\n")
}

func TestWrongClustersAreFound(t *testing.T) {
	all := points{1, []float64{0, 1, 10, 11}}
	good := clusters{centers: points{1, []float64{0.5, 10.5}}, counts: []float64{2, 2}, settled: true}
	require.NoError(t, verify(all, good, []int32{0, 0, 1, 1}))
	require.ErrorContains(t, verify(all, good, []int32{0, 0, 1, 2}), "point 3 is in cluster 2; there are 2")
	require.ErrorContains(t, verify(all, good, []int32{0, 0, 0, 1}), "cluster 0 has 3 points, and 2 by")
	require.ErrorContains(t, verify(all, good, []int32{0, 1, 0, 1}), "the center of cluster 0 is 0.5 in dimension 0")
	far := clusters{centers: points{1, []float64{5, 6}}, counts: []float64{2, 2}, settled: true}
	require.ErrorContains(t, verify(all, far, []int32{0, 1, 0, 1}), "nearer to the center of")
}

func TestBadPointsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                "no points: a point is a line of numbers",
		"x,y\n":           "no points",
		"1,2\n3\n":        "record on line 2: wrong number of fields",
		"x,y\n1,2\n3,z\n": `line 3, column 3: "z" is not a number from`,
		"1,\n":            `line 1, column 3: "" is not a number`,
		"1,NaN\n":         `line 1, column 3: "NaN" is not a number`,
		"1,1e300\n":       `line 1, column 3: "1e300" is not a number`,
		"1,\"2\n":         `extraneous or missing " in quoted-field`,
	} {
		_, err := parse(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

// What is read can be grouped.
func FuzzParse(f *testing.F) {
	f.Add("x,y\n1,2\n# comment\n3, 4\n")
	f.Add("1\n\"2\"\n")
	f.Add("1e100,-1e100")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		require.Zero(t, len(p.at)%p.dimensions)
		require.Positive(t, p.count())
		_, squared := p.nearest(p.point(p.count() - 1))
		require.False(t, math.IsInf(squared, 0) || math.IsNaN(squared))
	})
}

func TestBadInputIsRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-clusters 3":    "kmeans: flag provided but not defined: -clusters",
		"points.csv":     `kmeans: "points.csv" is not a flag; -h lists them`,
		"-k 0":           "kmeans: -k 0: must be from 1 to",
		"-k 9 -points 8": "kmeans: -k 9: must be from 1 to 65536, and not above the number of points, 8",
		"-points 0":      "kmeans: -points 0: must be 1 or more",
		"-dimensions -1": "kmeans: -dimensions -1: must be 1 or more",
		"-points 999999999 -dimensions 999999999": "kmeans: 999999999 points in 999999999 dimensions: more than",
		"-rounds 0":                "kmeans: -rounds 0: must be 1 or more",
		"-input none":              "kmeans: -input: open none: no such file",
		"-points 9 -output none/f": "kmeans: -output: file: open none/f: no such file",
	})
}

func TestBadPointsEndTheJob(t *testing.T) { exampletest.Ends(t, 4, "-input", "none.csv") }

func TestHelp(t *testing.T) { exampletest.Helps(t, "-dimensions int") }
