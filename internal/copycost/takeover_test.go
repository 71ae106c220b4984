package copycost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTakeover: the receiver takes over lines for as long as that makes copies quicker, and it is tried again
// later if it did not.
func TestTakeover(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after time.Duration // what copies of a KiB take
		want          bool
		wantTries     int
	}{
		{"AMD EPYC, family 25", 140, 25, true, 1},
		{"cores that share all caches", 19, 30, false, 0},
		{"quicker by too little", 100, 80, false, 2},
		{"slower", 100, 150, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var to Takeover
			tries, asked := 0, 0
			for i := range windowsKept + 20*windowsProven {
				each, taken := c.before, false
				if to.Ask() {
					if asked++; asked%10 > 3 {
						each, taken = c.after, true
					}
				}
				was := to.Ask()
				if to.Note(each, taken); to.Ask() && !was {
					tries++
				}
				if i == windowsKept/2 {
					require.Equal(t, c.want, to.Ask())
				}
			}
			require.Equal(t, c.wantTries, tries)
		})
	}
}

// TestTakeover_EndsWhenTheGainIsGone, but not while lines of a new ring have not been taken over.
func TestTakeover_EndsWhenTheGainIsGone(t *testing.T) {
	var to Takeover
	for range windowsTried {
		to.Note(140, false)
	}
	to.Note(25, true)
	for range 10 * windowsProven {
		to.Note(140, false)
		require.True(t, to.Ask())
	}
	for range windowsProven {
		require.True(t, to.Ask())
		to.Note(140, true)
	}
	require.False(t, to.Ask())
}

// TestTakeover_MovedCores: cores that move apart make all copies slower, and the receiver still takes over lines.
func TestTakeover_MovedCores(t *testing.T) {
	var to Takeover
	to.Measured(107, 25)
	require.True(t, to.Ask())
	for i := range 100 {
		if to.Ask() {
			to.Note(80, true)
		} else {
			to.Note(430, false)
		}
		if i > 10 {
			require.True(t, to.Ask())
		}
	}
	require.Equal(t, time.Duration(430), to.before)
}

// TestTakeover_Measured: it begins with what was measured.
func TestTakeover_Measured(t *testing.T) {
	for _, c := range []struct {
		read, taken time.Duration
		want        bool
	}{{107, 25, true}, {430, 60, true}, {107, 90, false}, {35, 10, false}, {0, 0, false}} {
		var to Takeover
		to.Measured(c.read, c.taken)
		require.Equal(t, c.want, to.Ask(), c)
	}
}

// TestTakeover_OneWindowProvesNothing: copies to new memory take longer, too.
func TestTakeover_OneWindowProvesNothing(t *testing.T) {
	var to Takeover
	for range 100 {
		to.Note(140, false)
		to.Note(25, false)
		require.False(t, to.Ask())
	}
}
