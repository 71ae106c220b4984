package main

import (
	"bytes"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestHeatTellsWhatItComputedAndDrawsIt(t *testing.T) {
	dir := t.TempDir()
	stdout, stderr, err := exampletest.Launch(t, 4, dir, "-width", "31", "-height", "17", "-steps", "45",
		"-output", "out.png")
	require.NoError(t, err, stderr)
	lines := strings.Split(stdout, "\n")
	require.Len(t, lines, 7, stdout)
	require.Equal(t, "plate       31 × 17 cells, with hot and cold spots at the start", lines[0])
	require.Equal(t, "ranks       4, in a grid of 2 × 2", lines[1])
	require.Contains(t, lines[2], "steps       45, ")
	require.Equal(t, "comparison  bit for bit what one rank computes alone", lines[4])
	require.Equal(t, "picture     out.png", lines[5])
	width, height := pictureAt(t, filepath.Join(dir, "out.png"))
	require.Equal(t, []int{31, 17}, []int{width, height})
}

// With no step the plate stays what the picture is, so every pixel of the output is known.
func TestThePictureIsTheStart(t *testing.T) {
	dir := t.TempDir()
	img := drawing(23, 11)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in.png"), encoded(t, img), 0o666))
	stdout, stderr, err := exampletest.Launch(t, 6, dir, "-input", "in.png", "-steps", "0", "-output",
		"out.png")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "plate       23 × 11 cells, as bright as in.png at the start")
	data, err := os.ReadFile(filepath.Join(dir, "out.png"))
	require.NoError(t, err)
	out, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, img.Bounds(), out.Bounds())
	for y := range 11 {
		for x := range 23 {
			require.Equal(t, colour(float64(img.Gray16At(x, y).Y)/math.MaxUint16), out.At(x, y),
				"pixel %d, %d", x, y)
		}
	}
}

func TestThePictureIsStretchedToThePlate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in.png"), encoded(t, drawing(5, 4)), 0o666))
	stdout, stderr, status := exampletest.Alone(t, dir, "-input", "in.png", "-width", "12", "-steps", "3")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "plate       12 × 4 cells")
	width, height := pictureAt(t, filepath.Join(dir, "heat.png"))
	require.Equal(t, []int{12, 4}, []int{width, height})
}

func TestTheRanksStopTogetherAtTheTolerance(t *testing.T) {
	stdout, stderr, err := exampletest.Launch(t, 4, t.TempDir(), "-width", "16", "-height", "16",
		"-tolerance", "1", "-output", "")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "steps       20, ")
	require.Contains(t, stdout, "bit for bit")
	require.NotContains(t, stdout, "picture")
}

func TestTheComparisonCanBeLeftOut(t *testing.T) {
	stdout, stderr, status := exampletest.Alone(t, t.TempDir(), "-width", "8", "-height", "8",
		"-check=false", "-output", "")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "comparison  left out: -check=false")
}

func TestAWrongAnswerIsFound(t *testing.T) {
	p := problem{Width: 4, Height: 3, Steps: 5, Diffusivity: 0.2, Columns: 1, Rows: 1}
	field := compute(p, roughness, p.Steps)
	field[6] = math.Nextafter(field[6], 1)
	err := report(options{check: true}, p, outcome{steps: p.Steps}, field, roughness)
	require.ErrorContains(t, err, "the ranks' answer is wrong: cell 2, 1 is ")
}

func TestBadInputIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, data, 0o666))
		return name
	}
	text, picture := file("text", []byte("no picture")), encoded(t, drawing(4, 4))
	huge, cut := file("huge.png", claiming(picture, 100_000, 100_000)),
		file("cut.png", picture[:len(picture)-20])
	for _, c := range []struct {
		name  string
		args  []string
		words []string
	}{
		{"unknown flag", []string{"-foo"}, []string{"heat: flag provided but not defined: -foo"}},
		{"no number", []string{"-steps", "x"}, []string{`heat: invalid value "x" for flag -steps`}},
		{"argument", []string{"in.png"}, []string{`heat: "in.png" is not a flag; -h lists them`}},
		{"no width", []string{"-width", "0"}, []string{"heat: -width 0 ", "one cell or more"}},
		{"negative height", []string{"-height", "-3"}, []string{" -height -3: ", "one cell or more"}},
		{"too large", []string{"-width", "1000000", "-height", "1000000"},
			[]string{"heat: -width 1000000 -height 1000000: more than"}},
		{"negative steps", []string{"-steps", "-1"}, []string{"heat: -steps -1: must be 0 or more"}},
		{"tolerance", []string{"-tolerance", "NaN"}, []string{"heat: -tolerance NaN: must be 0 or more"}},
		{"diffusivity", []string{"-diffusivity", "1"},
			[]string{"heat: -diffusivity 1: must be above 0, and at most 0.25"}},
		{"diffusivity not a number", []string{"-diffusivity", "NaN"},
			[]string{"heat: -diffusivity NaN: must be above 0"}},
		{"input missing", []string{"-input", "none.png"},
			[]string{"heat: -input: open none.png: no such file"}},
		{"input a folder", []string{"-input", dir}, []string{"heat: -input: " + dir, "is a directory"}},
		{"input not PNG", []string{"-input", text}, []string{"heat: -input: " + text +
			": not a PNG that can be read"}},
		{"input cut off", []string{"-input", cut}, []string{"heat: -input: " + cut +
			": not a PNG that can be read"}},
		{"input endless", []string{"-input", "/dev/zero"},
			[]string{"heat: -input: /dev/zero: not a PNG that can be read"}},
		{"input claims to be huge", []string{"-input", huge},
			[]string{"heat: -input: " + huge + ": 100000 × 100000 pixels; "}},
		{"checkpoint interval", []string{"-checkpoint-every", "0"},
			[]string{"heat: -checkpoint-every 0: must be 1 or more"}},
		{"checkpoint in a file", []string{"-output", "", "-checkpoint", text},
			[]string{"heat: -checkpoint: mkdir " + text + ": not a directory"}},
		{"output unwritable", []string{"-output", "none/out.png"},
			[]string{"heat: -output: open none/out.png: no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) { exampletest.Refused(t, c.args, c.words...) })
	}
}

func TestMoreRanksThanCellsEndTheJob(t *testing.T) {
	args := []string{"-width", "3", "-height", "1", "-output", ""}
	_, _, err := prepare(args, 4)
	require.EqualError(t, err,
		"4 ranks cannot share a plate of 3 × 1 cells: no grid of that many ranks has a cell for each; "+
			"use fewer ranks, or a larger -width or -height")
	exampletest.Ends(t, 4, args...)
}

// Rank 0 fails when the others are about to wait for the picture that it was to give them.
func TestABadPictureEndsTheJob(t *testing.T) { exampletest.Ends(t, 4, "-input", "none.png") }

func TestHelp(t *testing.T) { exampletest.Helps(t, "-diffusivity float") }

func pictureAt(t *testing.T, name string) (width, height int) {
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	return img.Bounds().Dx(), img.Bounds().Dy()
}
