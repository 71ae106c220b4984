package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLineSpeed(t *testing.T) {
	const fast, slow = 10 << 10, 1 << 20 // ticks
	var l lineSpeed
	require.False(t, l.avoid())
	l.read(lineSpeedBytes, slow)
	l.read(lineSpeedBytes, fast)
	l.read(lineSpeedBytes, slow)
	require.False(t, l.avoid(), "one slow call may have been interrupted")
	l.read(lineSpeedBytes-1, slow)
	require.False(t, l.avoid(), "few bytes tell nothing")
	l.read(lineSpeedBytes, slow)
	for range avoidedCalls {
		require.True(t, l.avoid())
	}
	require.False(t, l.avoid(), "one call looks again")
	l.read(lineSpeedBytes, slow)
	require.True(t, l.avoid(), "and finds it as it was")
	l.avoided = 0
	l.read(lineSpeedBytes, fast)
	l.read(lineSpeedBytes, slow)
	require.False(t, l.avoid(), "or not")
	l = lineSpeed{}
	l.read(lineSpeedBytes, 0)
	l.read(lineSpeedBytes, 0)
	require.False(t, l.avoid(), "without a clock nothing is slow")
}
