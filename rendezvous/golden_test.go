package rendezvous_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/rendezvous"
)

// TestGolden_Rendezvous are whole protocol runs: each message as it is announced, read and finished. Keys 1 to 4 are those of the rings.
func TestGolden_Rendezvous(t *testing.T) {
	small := rendezvous.FetcherConfig{Piece: 10, Depth: 2}
	write := rendezvous.FetcherConfig{Piece: 10, Depth: 2, Grant: true}
	for _, c := range []struct {
		name, what string
		conf       rendezvous.FetcherConfig
		sizes      []int
		room       int // of each receive buffer, if not -1
	}{
		{"one-piece", "one message, one READ", rendezvous.FetcherConfig{}, []int{1000}, -1},
		{"many-pieces", "25 bytes in pieces of 10, two of them under way at once", small, []int{25}, -1},
		{"depth", "two messages share the depth of 2, in their order", small, []int{35, 15}, -1},
		{"short-buffer", "buffers of 12 bytes: of a longer message no more is read", small, []int{40, 12, 3}, 12},
		{"zero-length", "messages of no bytes, and of one between them", small, []int{0, 1, 0}, -1},
		{"no-room", "buffers of no bytes: FIN at once", small, []int{5, 50}, 0},
		{"granted", "35 and 15 bytes, and none, are granted and written in pieces of 10, two of them under way at once", write, []int{35, 15, 0}, -1},
		{"granted-short", "buffers of 12 bytes are granted: of a longer message no more is written", write, []int{40, 12, 3}, 12},
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
