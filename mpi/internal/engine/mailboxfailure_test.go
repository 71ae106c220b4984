package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A report concerns exactly the exchanges of the failed collective, or the latest of them if it has more than a
// report can tell.
func TestFailureReport_Covers(t *testing.T) {
	for _, before := range []uint64{0, 1, reportBeforeMax - 1, reportBeforeMax, reportBeforeMax + 1, 3000} {
		const last = 10_000
		n := reportOf(last-before, last, ErrCount)
		first := last - min(before, reportBeforeMax)
		for exchange, covered := range map[uint64]bool{last + 1: false, last: true, first: true, first - 1: false} {
			require.Equal(t, covered, n.covers(exchange, exchange), "exchange %d of %d before", exchange, before)
		}
	}
	require.Zero(t, reportOf(1, 2, errTold))
}
