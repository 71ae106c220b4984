package copycost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWholeRing: a large ring is used for as long as copies into it are quicker, and tried again later if
// they were not.
func TestWholeRing(t *testing.T) {
	for _, c := range []struct {
		name         string
		first, whole time.Duration // what copies of a KiB take
		grows, may   bool
		want         bool
		wantTries    int
	}{
		{"AMD EPYC, family 25", 140, 40, true, true, true, 1},
		{"cores that share all caches", 19, 30, true, true, false, 0},
		{"quicker by too little", 100, 80, true, true, false, 2},
		{"no memory for it", 140, 40, false, true, false, 2},
		{"too many of them", 140, 40, true, false, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w WholeRing
			tries, waited := 0, 0
			for i := range windowsKept + 2*windowsWaited {
				each, known := c.first, false
				if w.Use() && c.grows {
					waited++
					each, known = c.whole, waited%windowsWaited > windowsWaited/2
				}
				was := w.Use()
				if w.Note(each, known, c.may); w.Use() && !was {
					tries++
				}
				if i < windowsTried-1 {
					require.False(t, w.Use(), "copies to new memory prove nothing")
				}
				if i == windowsKept/2 {
					require.Equal(t, c.want, w.Use())
					require.False(t, w.Trying())
				}
			}
			require.Equal(t, c.wantTries, tries)
		})
	}
}

// TestWholeRing_StaysWhereItHasGained: also while the ring is smaller for a time, but not when the gain is
// gone.
func TestWholeRing_StaysWhereItHasGained(t *testing.T) {
	var w WholeRing
	for range windowsTried {
		w.Note(140, false, true)
	}
	for range 2 * windowsTried {
		w.Note(40, true, true)
	}
	for range 10 * windowsTried {
		require.True(t, w.Use() && !w.Trying())
		w.Note(140, false, false)
	}
	for range windowsProven + 1 {
		require.True(t, w.Use())
		w.Note(140, true, false)
	}
	require.False(t, w.Use())
}
