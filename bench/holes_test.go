package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var measuredHoles = plain("holes", "holes", options(func(o *Options) { o.Iterations = 1 }))

// TestHoles_H1_NothingIsHeldBeyondAHole but the last word of a Write: while a lane carries nothing, what the
// others carry is in its place, and in order again when the lane's part has been sent anew. Seen to fail where
// the lane is not lost, and where beyondHole counts what lies before the hole.
func TestHoles_H1_NothingIsHeldBeyondAHole(t *testing.T) {
	r := launch(t, group{1, measuredHoles})
	require.NoError(t, r.Failure, r.Err)
	lines := strings.Split(strings.TrimSpace(r.Out), "\n")
	require.Equal(t, "# Size       In-order memory        Held      Placed(us)    In order(us)        Resent   Holes",
		lines[2])
	require.Len(t, lines[3:], len(holeSizes))
	for i, n := range holeSizes {
		var size, inOrder, held, resent, open int
		var placed, waited float64
		_, err := fmt.Sscanf(lines[3+i], "%d %d %d %f %f %d %d", &size, &inOrder, &held, &placed, &waited,
			&resent, &open)
		require.NoError(t, err, lines[3+i])
		require.Equal(t, n, size)
		require.Greater(t, inOrder, n*(holeMessages/2-1), "half of the Writes, but the first: %s", r.Out)
		require.Less(t, inOrder, n*holeMessages, "something is missing: %s", r.Out)
		require.LessOrEqual(t, held, 8*holeMessages, r.Out)
		require.Positive(t, resent, r.Out)
		require.Positive(t, open, r.Out)
		require.GreaterOrEqual(t, waited, placed, r.Out)
	}
}

func TestWhatLiesBeyondAHole(t *testing.T) {
	for text, want := range map[string][2]float64{
		"11111111 11111111": {0, 0},
		"........ ........": {0, 0},
		"1111.... ........": {0, 0},
		".1111111 11111111": {15 * 8, 0},
		"1111111. 1111....": {0, 8}, // the tail is held: all else of its Write is there
		"11.1111. 1.......": {5 * 8, 8},
		"11111111 ....1.11": {3 * 8, 0},
	} {
		text := strings.ReplaceAll(text, " ", "")
		b := make([]byte, 8*len(text))
		for i, c := range text {
			if c == '1' {
				b[8*i] = 0xff
			}
		}
		beyond, held := beyondHole(b, 64)
		require.Equal(t, want, [2]float64{beyond, held}, text)
	}
}
