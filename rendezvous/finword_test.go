package rendezvous

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// ringMemory is a ring of FINs, and a queue pair that writes into it.
type ringMemory struct {
	transport.QP
	words [finWords]uint64
}

func (m *ringMemory) WriteInline(to *transport.Segment, _, _ []byte, tail uint64) bool {
	m.words[to.Offset/wordSize] = tail
	return true
}

// TestFINRing: FINs are taken once, in their order, in every wrap of the ring, and none where only an earlier
// wrap's stands.
func TestFINRing(t *testing.T) {
	m := &ringMemory{}
	r, w := finRing{words: &m.words}, finWriter{key: 1}
	rng := rand.New(rand.NewPCG(1, 2))
	var open []uint64 // written and not taken
	for range 10_000 {
		if rng.IntN(2) == 0 && len(open) < finWords {
			id := endsWithWord | uint64(rng.IntN(3)) // the same ones again and again
			full, err := w.write(m, id)
			require.False(t, full)
			require.NoError(t, err)
			open = append(open, id)
		}
		id, came := r.arrived()
		require.Equal(t, len(open) > 0, came)
		if came && rng.IntN(2) == 0 {
			require.Equal(t, open[0], id)
			r.next++
			open = open[1:]
		}
	}
	require.Greater(t, w.next, uint64(10*finWords))
}

// TestFINWriter_OfASenderThatHasToldOfNone: the id is the peer's error.
func TestFINWriter_OfASenderThatHasToldOfNone(t *testing.T) {
	_, err := (&finWriter{}).write(&ringMemory{}, endsWithWord)
	require.ErrorIs(t, err, transport.ErrProtocol)
}

// FuzzTakeFIN: a word ends the open announcement that it names, once; any other is the peer's error, or
// nothing.
func FuzzTakeFIN(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0xa0, 1, 0, 0, 0, 0, 0, 0, 0xa0})
	f.Add(make([]byte, 16))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, c := &ringMemory{}, &channel.Channel{}
		of := &channelSends{c: c, fins: finRing{words: &m.words}}
		s := &Sender{channels: map[*channel.Channel]*channelSends{c: of}}
		open := map[uint64]uint64{}
		for token := range uint64(3) {
			i := s.alloc()
			s.table[i].c, s.table[i].channel, s.table[i].end, s.table[i].token = c, of, endWord, token
			of.open++
			of.fins.open++
			open[s.table[i].id(i)] = token
		}
		for len(b) >= wordSize && len(open) > 0 {
			w := binary.LittleEndian.Uint64(b)
			b = b[wordSize:]
			m.words[of.fins.next%finWords] = w
			want, named := open[w&^finWrapBit]
			token, came, err := s.TakeFIN(c)
			switch {
			case w == 0 || w != finWord(w&^finWrapBit, of.fins.next) && !came:
				require.False(t, came)
				return
			case err != nil:
				require.ErrorIs(t, err, transport.ErrProtocol)
				require.False(t, named)
				return
			}
			require.True(t, named)
			require.Equal(t, want, token)
			delete(open, w&^finWrapBit)
			require.Equal(t, len(open), s.Outstanding(c))
		}
	})
}
