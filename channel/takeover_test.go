package channel_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

// asksTakeover tells of each message that an end writes whether it asks to take over its lines.
func asksTakeover(l *link) *[]bool {
	var asked []bool
	l.Carried = func(from *channeltest.End, _ *transport.SendWR, data []byte) {
		if from == l.A && len(data) > 0 {
			asked = append(asked, data[13]&2 != 0)
		}
	}
	return &asked
}

// TestTakeover_E12: a sender asks for it with longer messages alone, and they arrive unchanged, by the fast
// path and the slow one.
func TestTakeover_E12(t *testing.T) {
	l, _ := busyPollingLink(t)
	asked := asksTakeover(l)
	require.False(t, l.a.Takeover())
	l.a.AskTakeover(true)
	for i := range 100 {
		payload := bytes.Repeat([]byte{byte(i)}, 17*64-32)
		sent, err := l.a.TrySend(channel.Eager, 7, payload[:i%2*len(payload)], 0)
		require.NoError(t, err)
		require.True(t, sent)
		l.drive(t)
		got := make([]byte, len(payload))
		if i%4 < 2 {
			n, ok := l.b.TryRecv(channel.Eager, 7, got)
			require.True(t, ok)
			got = got[:n]
		} else {
			bodies := take(t, l.b)
			require.Len(t, bodies, 1)
			got = bodies[0][8:]
		}
		require.Equal(t, payload[:i%2*len(payload)], got)
		require.Equal(t, i%2 == 1, (*asked)[len(*asked)-1], "message %d", i)
		require.True(t, put(t, l.b, channel.Eager, nil, false))
		l.drive(t)
		require.Len(t, take(t, l.a), 1)
	}
	l.a.AskTakeover(false)
	require.Equal(t, 1, stream(t, l.a, 17, 1))
	l.drive(t)
	require.False(t, (*asked)[len(*asked)-1])
}

// TestTakeover_HasItsEffectAfterAWrap of a ring, and of a new one.
func TestTakeover_HasItsEffectAfterAWrap(t *testing.T) {
	l, _ := busyPollingLink(t)
	l.a.AskTakeover(true)
	lines := 0
	for ; !l.a.Takeover() && lines < 4*2048; lines += 30 {
		require.Equal(t, 1, stream(t, l.a, 30, 1))
		l.reads(t, l.b, 1)
		require.Empty(t, take(t, l.a))
	}
	require.Greater(t, lines, 2048)
	require.Less(t, lines, 3*2048)
	l.a.AskTakeover(true)
	require.True(t, l.a.Takeover(), "it has been asked before")
	l.a.AskTakeover(false)
	require.False(t, l.a.Takeover())
}

// TestTakeover_OnlyOfMappedMemory: another peer's receiver gains nothing.
func TestTakeover_OnlyOfMappedMemory(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{1500}})
	asked := asksTakeover(l)
	l.a.AskTakeover(true)
	require.Equal(t, 1, stream(t, l.a, 17, 1))
	l.drive(t)
	require.Equal(t, []bool{false}, *asked)
	require.False(t, l.a.Takeover())
}
