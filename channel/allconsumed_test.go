package channel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllConsumed: the peer has consumed all messages, and an answer has said so; CREDITs, which need no
// answer, do not count.
func TestAllConsumed(t *testing.T) {
	d := newTestPair(t, Config{})
	say := func(from, to *Channel) {
		sent, err := from.TrySend(Eager, 1, []byte("a message"), 0)
		require.True(t, sent && err == nil)
		for {
			d.drive(t)
			_, _, there, err := to.Next()
			require.NoError(t, err)
			if there {
				to.Release()
				return
			}
		}
	}
	require.False(t, d.a.AllConsumed(), "before the first message")
	for range 3 {
		say(d.a, d.b)
		require.False(t, d.a.AllConsumed())
		say(d.b, d.a)
		require.True(t, d.a.AllConsumed())
		for range 2 {
			require.True(t, d.a.send.reserveLines(1, 0))
			require.NoError(t, d.a.sendCredit())
			require.True(t, d.a.AllConsumed())
		}
		say(d.a, d.b)
		require.False(t, d.a.AllConsumed())
	}
}
