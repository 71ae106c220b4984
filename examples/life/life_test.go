package main

import (
	"fmt"
	"image"
	"image/gif"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// after is a board some generations later, computed by the plain rule.
func after(b board, generations int) board {
	for range generations {
		b = b.next()
	}
	return b
}

func TestTheRanksPlayAsOneDoes(t *testing.T) {
	for _, ranks := range exampletest.Ranks() {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			stdout, stderr, err := exampletest.Launch(t, ranks, t.TempDir(), "-width", "37", "-height", "23",
				"-generations", "60", "-seed", "7")
			require.NoError(t, err, stderr)
			want := after(soup(37, 23, 7), 60)
			require.True(t, strings.HasPrefix(stdout, want.String()), stdout)
			require.Contains(t, stdout, fmt.Sprintf(": %d cells live; checked\n", want.living()))
		})
	}
}

// The blocks are one cell wide or high, and the neighbors on both sides are one rank, or the rank itself.
func TestTheSmallestBlocks(t *testing.T) {
	for _, c := range []struct{ ranks, width, height int }{{4, 2, 2}, {3, 3, 1}, {4, 1, 4}, {2, 5, 2}, {1, 1, 1}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			stdout, stderr, err := exampletest.Launch(t, c.ranks, t.TempDir(), "-width", fmt.Sprint(c.width),
				"-height", fmt.Sprint(c.height), "-generations", "2", "-seed", "3")
			require.NoError(t, err, stderr)
			require.True(t, strings.HasPrefix(stdout, after(soup(c.width, c.height, 3), 2).String()), stdout)
		})
	}
}

// A glider is itself again after four generations, one cell further down and to the right. On the way it
// crosses corners of blocks, and the ends of the board.
func TestAGliderCrossesCorners(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "glider.cells"),
		[]byte("!Name: Glider\n.O\n..O\r\nOOO\n"), 0o666))
	stdout, stderr, err := exampletest.Launch(t, 4, dir, "-input", "glider.cells", "-width", "9", "-height", "9",
		"-generations", "36", "-output", "end.cells", "-gif", "film.gif", "-every", "12")
	require.NoError(t, err, stderr)
	require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
	start := board{3, 3, []uint8{0, 1, 0, 0, 0, 1, 1, 1, 1}}.on(9, 9)
	end, err := load(filepath.Join(dir, "end.cells"))
	require.NoError(t, err)
	require.Equal(t, start, end)

	f, err := os.Open(filepath.Join(dir, "film.gif"))
	require.NoError(t, err)
	defer f.Close()
	pictures, err := gif.DecodeAll(f)
	require.NoError(t, err)
	require.Len(t, pictures.Image, 4)
	for i, picture := range pictures.Image {
		want := after(start, 12*i)
		const side = filmSide / 9 // pixels of a cell
		require.Equal(t, image.Pt(9*side, 9*side), picture.Rect.Size())
		for y := range 9 {
			for x := range 9 {
				for _, at := range []image.Point{{x * side, y * side}, {(x+1)*side - 1, (y+1)*side - 1}} {
					require.Equal(t, want.cells[9*y+x], picture.ColorIndexAt(at.X, at.Y), "picture %d: %v", i, at)
				}
			}
		}
	}
}

// Cells of a long film, and of a large board, are smaller.
func TestSidesOfCells(t *testing.T) {
	require.Equal(t, 8, newFilm(64, 32, 101).side)
	require.Equal(t, 3, newFilm(64, 32, 10_000).side)
	require.Equal(t, 1, newFilm(2000, 1, 1).side)
}

func TestTheGunShoots(t *testing.T) {
	gun, err := load("testdata/gun.cells")
	require.NoError(t, err)
	require.Equal(t, 36, gun.living())
	require.Equal(t, 36+5, after(gun.on(80, 60), 30).living())
}

func TestAWrongAnswerIsFound(t *testing.T) {
	start := soup(4, 3, 1)
	end := start.next()
	end.cells[6] ^= alive
	err := report(options{Check: true, Generations: 1}, nil, start, end, nil, 1)
	require.ErrorContains(t, err, "the ranks' answer is wrong: cell 2, 1 is ")
}

func TestBadPatternsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     `no cells in 0 lines; a row is a line of "." and "O"`,
		"!nothing\n\n":                         `no cells in 2 lines`,
		"!x\n..O\n.*.\n":                       `line 3, column 2: '*' is neither "." (dead) nor "O" (alive)`,
		".é":                                   `line 1, column 2: 'é' is neither`,
		"x = 3, y = 3\nbo":                     `line 1, column 1: 'x' is neither`,
		"O\n" + strings.Repeat(".", maxLine+1): "line 2: longer than 1048576 bytes: no pattern",
	} {
		_, err := parse(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

// What is read is what is written, and nothing makes the parser panic.
func FuzzParse(f *testing.F) {
	f.Add(".O\n..O\nOOO\n")
	f.Add("!comment\r\n\nO\r\n")
	f.Add("x")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := parse(strings.NewReader(b.String()))
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}

func TestBadInputIsRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-foo":                       "life: flag provided but not defined: -foo",
		"gun.cells":                  `life: "gun.cells" is not a flag; -h lists them`,
		"-width 0":                   "life: -width 0 -height 32: a board has one cell or more each way",
		"-width 99999 -height 99999": "life: -width 99999 -height 99999: more than",
		"-generations -1":            "life: -generations -1: must be 0 or more",
		"-every 0":                   "life: -every 0: must be 1 or more",
		"-gif f -generations 999999": "life: -gif: 1000000 pictures of 64 × 32 cells are more than",
		"-gif f -width 70000":        "life: -gif: 70000 × 32 cells; a GIF has less than 65536 each way",
		"-input none":                "life: -input: open none: no such file",
		"-input /dev/zero":           "life: -input: /dev/zero: line 1: longer than 1048576 bytes",
		"-gif none/f":                "life: -gif: open none/f: no such file",
		"-output none/f":             "life: -output: open none/f: no such file",
	})
	gun, err := filepath.Abs("testdata/gun.cells")
	require.NoError(t, err)
	exampletest.Refused(t, []string{"-input", gun, "-width", "10"},
		"life: -width 10 -height 9: the pattern has 36 × 9 cells")
}

func TestMoreRanksThanRowsAndColumnsEndTheJob(t *testing.T) {
	_, err := arrange(5, 3, 2)
	require.EqualError(t, err, "5 ranks cannot share 3 × 2 cells: each needs a row or a column; "+
		"use fewer ranks, or a larger -width or -height")
	exampletest.Ends(t, 4, "-width", "3", "-height", "1")
}

func TestHelp(t *testing.T) { exampletest.Helps(t, "-generations int") }
