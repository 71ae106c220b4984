package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLineSpeed(t *testing.T) {
	fast, slow := copySpeed{lineSpeedBytes, lineSpeedBytes/4 - 1}, copySpeed{lineSpeedBytes, lineSpeedBytes / 4}
	var l lineSpeed
	require.False(t, l.avoid())
	l.note(slow)
	l.note(fast)
	l.note(slow)
	require.False(t, l.avoid(), "one slow call may have been interrupted")
	l.note(copySpeed{lineSpeedBytes - 1, lineSpeedBytes - 1})
	require.False(t, l.avoid(), "few bytes tell nothing")
	l.note(slow)
	for range avoidedCalls {
		require.True(t, l.avoid())
	}
	require.False(t, l.avoid(), "one call looks again")
	l.note(slow)
	require.True(t, l.avoid(), "and finds it as it was")
	l.avoided = 0
	l.note(fast)
	l.note(slow)
	require.False(t, l.avoid(), "or not")
	l = lineSpeed{}
	var speed copySpeed
	speed.copied(lineSpeedBytes, lineSpeedBytes/slowBytesPerTick)
	require.Zero(t, speed.slow)
	speed.copied(lineSpeedBytes, lineSpeedBytes/slowBytesPerTick+1)
	require.Equal(t, copySpeed{2 * lineSpeedBytes, lineSpeedBytes}, speed)
	for range 2 {
		var without copySpeed
		without.copied(lineSpeedBytes, 0)
		l.note(without)
	}
	require.False(t, l.avoid(), "without a clock nothing is slow")
}
