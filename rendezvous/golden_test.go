package rendezvous_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/rendezvous"
)

// TestGolden_Rendezvous are whole protocol runs: each message as it is announced, read and finished. Keys 1
// to 4 are those of the rings.
func TestGolden_Rendezvous(t *testing.T) {
	small := rendezvous.ReceiverConfig{Piece: 10, Depth: 2}
	write := rendezvous.ReceiverConfig{Piece: 10, Depth: 2, Grant: true}
	for _, c := range []struct {
		name, what string
		conf       rendezvous.ReceiverConfig
		sizes      []int
		room       int // of each receive buffer, if not -1
	}{
		{"one-piece", "one message, one READ", rendezvous.ReceiverConfig{}, []int{1000}, -1},
		{"many-pieces", "25 bytes in pieces of 10, two of them under way at once", small, []int{25}, -1},
		{"depth", "two messages share the depth of 2, in their order", small, []int{35, 15}, -1},
		{"short-buffer", "buffers of 12 bytes: of a longer message no more is read", small,
			[]int{40, 12, 3}, 12},
		{"zero-length", "messages of no bytes, and of one between them", small, []int{0, 1, 0}, -1},
		{"no-room", "buffers of no bytes: FIN at once", small, []int{5, 50}, 0},
		{"granted", "35 and 15 bytes, and none, are granted and written in pieces of 10, two of them under way at once", write, []int{35, 15, 0}, -1},
		{"granted-short", "buffers of 12 bytes are granted: of a longer message no more is written", write,
			[]int{40, 12, 3}, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := open(t, c.conf)
			l.record()
			l.Say("%s", c.what)
			if c.room >= 0 {
				l.b.size = func(rendezvous.RTS) int { return c.room }
			}
			for i, n := range c.sizes {
				ok, err := l.a.announce(pattern(0, i, n), i < len(c.sizes)-1)
				require.NoError(t, err)
				require.True(t, ok)
			}
			l.settle(t, true)
			l.Golden(t, c.name)
			l.close(t)
		})
	}
}

// TestGolden_Withdraw is a message that no receive has matched, and one that a receive matches while WITHDRAW
// is on its way.
func TestGolden_Withdraw(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{})
	l.record()
	l.b.keep = func(rendezvous.RTS) bool { return true }
	for i, n := range []int{1000, 0, 500} {
		ok, err := l.a.announce(pattern(0, i, n), false)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.NoError(t, l.Drive())
	require.NoError(t, l.b.receive(1<<20))
	require.Len(t, l.b.kept, 3)
	l.Say("the first two are withdrawn")
	require.NoError(t, l.a.snd.Withdraw(l.a.ch, l.a.ids[0]))
	require.NoError(t, l.a.snd.Withdraw(l.a.ch, l.a.ids[1]))
	l.settle(t, true)
	l.Say("the third is matched before its WITHDRAW is read")
	require.NoError(t, l.a.snd.Withdraw(l.a.ch, l.a.ids[2]))
	rts := l.b.kept[0]
	l.b.kept = nil
	require.NoError(t, l.b.match(rts))
	l.settle(t, true)
	require.Equal(t, []int{1, 1, 1}, l.a.finished)
	require.Equal(t, 2, l.a.back)
	require.Equal(t, 1, l.b.late)
	l.Golden(t, "withdraw")
	l.close(t)
}
