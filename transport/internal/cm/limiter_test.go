package cm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However many unauthenticated callers come, few lines tell of them, and what they leave out is told.
func TestLimiter_TellsHowManyWereOmitted(t *testing.T) {
	var l Limiter
	now := time.Unix(100, 0)
	reports, told := 0, 0
	for range 3 * int(reportPeriod/time.Millisecond) { // a thousand callers a second, for three periods
		if omitted, ok := l.Allow(now); ok {
			reports++
			told += omitted
		}
		now = now.Add(time.Millisecond)
	}
	require.Equal(t, 3*reportBurst, reports)
	omitted, ok := l.Allow(now)
	require.True(t, ok)
	require.Equal(t, 3*int(reportPeriod/time.Millisecond)+1, reports+1+told+omitted)
}
