package channel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

// wholeRingLines is how many lines the ring of the last phase has: 1 MiB.
const wholeRingLines = 16376

// usingWholeRing opens a link of whose ends one sends long messages through a ring of 1 MiB. last tells the
// end of what it has written last, in lines.
func usingWholeRing(t *testing.T) (l *link, last func() int) {
	l = openInline(t, channel.Config{WholeRing: true, BusyPolling: true})
	l.a.UseWholeRing(true)
	for range 3 { // the request, the reply, and the end of the old ring
		progress(t, l.a)
		l.drive(t)
		require.Empty(t, take(t, l.a))
		require.Empty(t, take(t, l.b))
	}
	require.Equal(t, 2, l.a.Phase())
	require.Zero(t, l.b.Phase(), "only this direction")
	at := 0
	l.Carried = func(from *channeltest.End, wr *transport.SendWR, data []byte) {
		if from == l.A && len(data) > 0 {
			at = (int(wr.Remote[0].Offset) + len(data)) / 64
		}
	}
	return l, func() int { return at }
}

// answers has the other end read all and say so.
func (l *link) answers(t *testing.T) {
	l.drive(t)
	require.NotEmpty(t, take(t, l.b))
	require.True(t, put(t, l.b, channel.Eager, nil, false))
	l.drive(t)
	require.Len(t, take(t, l.a), 1)
}

// TestWholeRing_E12_DialoguesOfLongMessages go through all lines, and short ones to the first lines again.
func TestWholeRing_E12_DialoguesOfLongMessages(t *testing.T) {
	l, last := usingWholeRing(t)
	greatest := 0
	for range 400 {
		require.Equal(t, 1, stream(t, l.a, 65, 1))
		l.answers(t)
		greatest = max(greatest, last())
	}
	require.Greater(t, greatest, wholeRingLines-65)
	require.True(t, l.a.KnowsWholeRing())
	for range 20 {
		stream(t, l.a, 1, 1)
		l.answers(t)
	}
	require.LessOrEqual(t, last(), 4, "short messages")
	l.a.UseWholeRing(false)
	for range 4 {
		stream(t, l.a, 65, 1)
		l.answers(t)
		require.LessOrEqual(t, last(), 4+65)
	}
}

// TestWholeRing_E12_Streams: short messages that have no window beside long ones do not wait for one.
func TestWholeRing_E12_Streams(t *testing.T) {
	l, last := usingWholeRing(t)
	require.Greater(t, stream(t, l.a, 9, many), 1000)
	require.Greater(t, last(), wholeRingLines-100)

	l, last = usingWholeRing(t)
	require.Positive(t, stream(t, l.a, 1, many))
	require.LessOrEqual(t, last(), windowLines)

	l, _ = usingWholeRing(t)
	for range 20 {
		require.Equal(t, 1, stream(t, l.a, 100, 1))
		require.Equal(t, 1, stream(t, l.a, 1, 1))
	}
}

// TestWholeRing_E10_StaysWhileItIsUsed: and the ring gets small again when no long messages come.
func TestWholeRing_E10_StaysWhileItIsUsed(t *testing.T) {
	l, _ := usingWholeRing(t)
	for range 3 {
		stream(t, l.a, 65, 2)
		l.answers(t)
		require.NoError(t, l.a.ShrinkIfIdle())
		require.Equal(t, 2, l.a.Phase())
	}
	for range 20 {
		stream(t, l.a, 1, 1)
		l.answers(t)
	}
	for range 3 {
		stream(t, l.a, 1, 1)
		l.answers(t)
		require.NoError(t, l.a.ShrinkIfIdle())
		for range 3 {
			progress(t, l.a)
			l.drive(t)
			take(t, l.a)
			take(t, l.b)
		}
	}
	require.Zero(t, l.a.Phase())
	require.False(t, l.a.KnowsWholeRing())
}

// TestWholeRing_OnlyWhereItMakesSense: not beside a first ring that stays, nor if the peer's memory is not
// mapped.
func TestWholeRing_OnlyWhereItMakesSense(t *testing.T) {
	for _, l := range []*link{
		openInline(t, channel.Config{WholeRing: true, KeepSmall: true}),
		openInline(t, channel.Config{}),
		open(t, channel.Config{WholeRing: true}),
	} {
		l.a.UseWholeRing(true)
		for range 3 {
			progress(t, l.a)
			l.drive(t)
			take(t, l.a)
			take(t, l.b)
		}
		require.Zero(t, l.a.Phase())
	}
}
