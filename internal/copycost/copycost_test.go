package copycost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The numbers of three processors.
var (
	xeon207      = Costs{Call: 500 * time.Nanosecond, CallKiB: 70 * time.Nanosecond, MappedKiB: 210 * time.Nanosecond}
	epycApart    = Costs{Call: 2300 * time.Nanosecond, CallKiB: 65 * time.Nanosecond, MappedKiB: 205 * time.Nanosecond}
	epycTogether = Costs{Call: 950 * time.Nanosecond, CallKiB: 65 * time.Nanosecond, MappedKiB: 40 * time.Nanosecond}
)

// TestChoices are those that measurements have found best on three processors.
func TestChoices(t *testing.T) {
	for _, c := range []struct {
		name                                                       string
		costs                                                      Costs
		awaited, awaitedMost, staged, stagedMost, byBoth, byBothTo int
	}{
		{"Xeon, model 207", xeon207, 4 << 10, 8<<10 - 1, 0, 8<<10 - 1, 0, 8<<10 - 1},
		{"EPYC, family 26, cores apart", epycApart, 16 << 10, 32<<10 - 1, 16 << 10, 32<<10 - 1, 32 << 10,
			64<<10 - 1},
		{"EPYC, family 26, cores that share a cache", epycTogether, 128 << 10, 128 << 10, 64 << 10, 128 << 10,
			64 << 10, 128 << 10},
	} {
		for what, v := range map[string][3]int{
			"awaited": {c.awaited, c.costs.Awaited(), c.awaitedMost},
			"staged":  {c.staged, c.costs.Staged(), c.stagedMost},
			"by both": {c.byBoth, c.costs.StagedByBoth(), c.byBothTo},
		} {
			require.LessOrEqual(t, v[0], v[1], "%s: %s", c.name, what)
			require.LessOrEqual(t, v[1], v[2], "%s: %s", c.name, what)
		}
	}
	require.Equal(t, Default.Awaited(), Costs{}.Awaited())
}
