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

// TestTakeover_OneWindowProvesNothing: copies to new memory take longer, too.
func TestTakeover_OneWindowProvesNothing(t *testing.T) {
	var to Takeover
	for range 100 {
		to.Note(140, false)
		to.Note(25, false)
		require.False(t, to.Ask())
	}
}
