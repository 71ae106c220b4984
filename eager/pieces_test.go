package eager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// abreast is a link through shared memory with large slots, in which streams stay in narrow laps.
func abreast(t testing.TB) *link {
	l := &link{Pair: channeltest.NewPair()}
	l.a, l.b = channeltest.OpenPlacing(t, l.Pair, true, func(e *channeltest.End) (*channel.Channel, error) {
		return channel.New(e.PD(), channel.Config{Phases: []int{640, 16384}, Abreast: true})
	})
	require.False(t, l.a.Streams(), "in a small ring")
	l.grow(t)
	require.True(t, l.a.Streams())
	return l
}

// pieces takes the pieces of a message that are there: what FIRST says, if one is, and the bytes.
func pieces(t testing.TB, c *channel.Channel, env *eager.Envelope, total *int, most int) (payload []byte) {
	for n := 0; n < most; n++ {
		kind, body, ok, err := c.Next()
		require.NoError(t, err)
		if !ok {
			break
		}
		switch kind {
		case channel.First:
			*env, *total, body, err = eager.ParseFirst(body)
			require.NoError(t, err)
		default:
			require.Equal(t, channel.More, kind)
			require.LessOrEqual(t, len(body), eager.PieceLen)
		}
		require.NotEmpty(t, body)
		payload = append(payload, body...)
		c.Release()
	}
	return payload
}

// TestPieces_E5_AllOfIt sends messages of every length around where a piece ends, and reads them at any pace.
func TestPieces_E5_AllOfIt(t *testing.T) {
	l := abreast(t)
	var cut eager.Pieces
	waits := 0
	for seq := range 400 {
		size := eager.PieceLen*(1+seq%8) + seq%25 - 12
		if size <= eager.PieceLen {
			size = eager.PieceLen + 1
		}
		env, payload := eager.Envelope{Context: 3, Tag: int32(seq)}, pattern(seq, size)
		var got []byte
		var gotEnv eager.Envelope
		total, gone := 0, 0
		for gone < size {
			var n int
			var err error
			if gone == 0 {
				n, err = cut.Begin(l.a, env, payload)
			} else {
				n, err = cut.More(l.a, payload[gone:], false)
			}
			require.NoError(t, err)
			if gone += n; n == 0 {
				waits++
			}
			if n == 0 || seq%3 == 0 {
				got = append(got, pieces(t, l.b, &gotEnv, &total, 1+seq%5)...)
				_, err := l.b.Progress()
				require.NoError(t, err)
				require.NoError(t, l.Drive())
				require.NoError(t, drain(l.a))
			}
		}
		got = append(got, pieces(t, l.b, &gotEnv, &total, 100)...)
		require.Equal(t, env, gotEnv)
		require.Equal(t, size, total)
		require.Equal(t, payload, got, "message %d of %d bytes", seq, size)
	}
	require.Greater(t, waits, 10)
}

// TestPieces_E5_TheRestAsAMessage goes on where there was no room any more.
func TestPieces_E5_TheRestAsAMessage(t *testing.T) {
	l := abreast(t)
	var cut eager.Pieces
	env, payload := eager.Envelope{Context: 3, Tag: 4}, pattern(1, 16000)
	gone, err := cut.Begin(l.a, env, payload)
	require.NoError(t, err)
	for n := gone; n > 0; gone += n {
		n, err = cut.More(l.a, payload[gone:], false)
		require.NoError(t, err)
	}
	require.Less(t, gone, len(payload))
	var m eager.Message
	m.Resume(env, [][]byte{payload[gone:]})
	require.True(t, m.Begun())
	n, o, err := m.Advance(l.a, false)
	require.NoError(t, err)
	require.Equal(t, channel.Done, o)
	require.Equal(t, len(payload)-gone, n)
	require.True(t, m.Done())
	require.NoError(t, l.Drive())
	var got []byte
	for left := true; left; {
		kind, body, ok, err := l.b.Next()
		require.NoError(t, err)
		if left = ok; ok {
			if kind == channel.First {
				_, _, body, err = eager.ParseFirst(body)
				require.NoError(t, err)
			}
			got = append(got, body...)
			l.b.Release()
		}
	}
	require.Equal(t, payload, got)
}

func TestPieces_ABrokenQueuePairSendsNothing(t *testing.T) {
	l := abreast(t)
	var cut eager.Pieces
	payload := pattern(1, 5000)
	l.A.Abort(transport.ErrPeerLost)
	n, err := cut.Begin(l.a, eager.Envelope{}, payload)
	require.ErrorIs(t, err, transport.ErrState)
	require.Zero(t, n)
	n, err = cut.More(l.a, payload, false)
	require.ErrorIs(t, err, transport.ErrState)
	require.Zero(t, n)
}

func TestPieces_NoAllocation(t *testing.T) {
	l := abreast(t)
	var cut eager.Pieces
	payload := pattern(1, 8000)
	require.Zero(t, testing.AllocsPerRun(300, func() {
		gone, err := cut.Begin(l.a, eager.Envelope{Tag: 1}, payload)
		for n := gone; n > 0 && gone < len(payload); gone += n {
			n, err = cut.More(l.a, payload[gone:], false)
		}
		if err != nil || gone != len(payload) {
			t.Fatal(gone, err)
		}
		for {
			if _, _, ok, err := l.b.Next(); err != nil {
				t.Fatal(err)
			} else if !ok {
				break
			}
			l.b.Release()
		}
		if _, err := l.b.Progress(); err != nil {
			t.Fatal(err)
		}
		if err := drain(l.a); err != nil {
			t.Fatal(err)
		}
	}))
}
