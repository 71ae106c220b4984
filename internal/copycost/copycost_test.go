package copycost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChoices are those that measurements have found best on two processors.
func TestChoices(t *testing.T) {
	for _, c := range []struct {
		name                                                       string
		call                                                       time.Duration
		awaited, awaitedMost, staged, stagedMost, byBoth, byBothTo int
	}{
		{"Xeon, model 207", 500 * time.Nanosecond, 4 << 10, 8 << 10, 0, 8<<10 - 1, 0, 8<<10 - 1},
		{"EPYC, family 26", 2300 * time.Nanosecond, 16 << 10, 24 << 10, 16 << 10, 32<<10 - 1, 32 << 10, 64<<10 - 1},
	} {
		for what, v := range map[string][3]int{
			"awaited": {c.awaited, Awaited(c.call), c.awaitedMost},
			"staged":  {c.staged, Staged(c.call), c.stagedMost},
			"by both": {c.byBoth, StagedByBoth(c.call), c.byBothTo},
		} {
			require.LessOrEqual(t, v[0], v[1], "%s: %s", c.name, what)
			require.LessOrEqual(t, v[1], v[2], "%s: %s", c.name, what)
		}
	}
	require.Equal(t, Awaited(DefaultCall), Awaited(0))
}
