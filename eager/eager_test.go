package eager_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// link is a channel with both its ends. At the end of the test nothing of it may be left.
type link struct {
	*channeltest.Pair
	a, b *channel.Channel
}

func open(t testing.TB, cfg channel.Config) *link {
	l := &link{Pair: channeltest.NewPair()}
	l.a, l.b = channeltest.Open(t, l.Pair, func(e *channeltest.End) (*channel.Channel,
		error) {
		return channel.New(e.PD(), cfg)
	})
	return l
}

// turn has both ends look at what has come, and tell what is unadvertised: nothing else is there.
func (l *link) turn(t testing.TB, looks ...*channel.Channel) {
	t.Helper()
	require.NoError(t, l.Drive())
	for _, c := range looks {
		_, _, ok, err := c.Next()
		require.NoError(t, err)
		require.False(t, ok)
	}
	for _, c := range []*channel.Channel{l.a, l.b} {
		_, err := c.Progress()
		require.NoError(t, err)
	}
	require.NoError(t, l.Drive())
}

// arrive carries everything out, and gives the one message that then is there.
func (l *link) arrive(t testing.TB, c *channel.Channel) (eager.Envelope, []byte) {
	t.Helper()
	require.NoError(t, l.Drive())
	kind, body, ok, err := c.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, channel.Eager, kind)
	env, payload, err := eager.Parse(body)
	require.NoError(t, err)
	payload = append([]byte{}, payload...)
	c.Release()
	return env, payload
}

// pattern is n bytes that depend on the message and on their place.
func pattern(seq, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint64(seq+1)*0xbf58476d1ce4e5b9>>32) ^ byte(uint64(i+1)*0x94d049bb133111eb>>32)
	}
	return b
}

func TestGolden_Eager(t *testing.T) {
	l := open(t, channel.Config{})
	var tr channeltest.Transcript
	tr.Record(l.Pair, l.a.Descriptor(), l.b.Descriptor())
	tr.Say("from nothing to all that a slot takes")
	for _, payload := range []string{"", "ping", string(bytes.Repeat([]byte("0123456789"),
		61)[:eager.MaxPayload(l.a)])} {
		sent, err := eager.TrySend(l.a, eager.Envelope{Context: 7, Tag: 42}, []byte(payload), 0)
		require.NoError(t, err)
		require.True(t, sent)
		_, got := l.arrive(t, l.b)
		require.Equal(t, payload, string(got))
	}
	tr.Say("the greatest envelope, a payload in three pieces, and a message that follows at once")
	env := eager.Envelope{Context: math.MaxUint32, Tag: math.MaxInt32}
	var m eager.Message
	m.Start(env, [][]byte{[]byte("left "), nil, []byte("middle "), []byte("right")})
	n, o, err := m.TrySend(l.b, channel.FlagMore)
	require.NoError(t, err)
	require.Equal(t, channel.Done, o)
	require.Equal(t, 17, n)
	sent, err := eager.TrySend(l.b, eager.Envelope{}, []byte("after"), 0)
	require.NoError(t, err)
	require.True(t, sent)
	got, payload := l.arrive(t, l.a)
	require.Equal(t, env, got)
	require.Equal(t, "left middle right", string(payload))
	got, payload = l.arrive(t, l.a)
	require.Equal(t, eager.Envelope{}, got)
	require.Equal(t, "after", string(payload))
	tr.Golden(t, "eager")
}

// TestSend_E12_EverySizeUpToMax arrives as it was, in slots of every size.
func TestSend_E12_EverySizeUpToMax(t *testing.T) {
	for _, slot := range []int{100, 128, 129, 640, 1999, 2000} {
		l := open(t, channel.Config{Phases: []int{slot}})
		require.Equal(t, slot-32, eager.MaxPayload(l.a))
		for n := 0; n <= eager.MaxPayload(l.a); n++ {
			env := eager.Envelope{Context: uint32(n) << 20, Tag: int32(n)}
			sent, err := eager.TrySend(l.a, env, pattern(n, n), 0)
			require.NoError(t, err)
			require.True(t, sent)
			got, payload := l.arrive(t, l.b)
			require.Equal(t, env, got)
			require.Equal(t, pattern(n, n), payload)
			l.turn(t)
			l.turn(t, l.a)
		}
		sent, err := eager.TrySend(l.a, eager.Envelope{}, make([]byte, eager.MaxPayload(l.a)+1), 0)
		require.NoError(t, err)
		require.False(t, sent)
	}
	p := channeltest.NewPair()
	c, err := channel.New(p.A.PD(), channel.Config{})
	require.NoError(t, err)
	require.Negative(t, eager.MaxPayload(c), "before the channel is open")
	require.NoError(t, c.Close())
}

// TestMaxPayload_E2_IsTheThreshold if that is less than what a slot carries.
func TestMaxPayload_E2_IsTheThreshold(t *testing.T) {
	require.Equal(t, 50, eager.MaxPayload(open(t, channel.Config{Threshold: 50}).a))
	require.Equal(t, 608, eager.MaxPayload(open(t, channel.Config{Threshold: 616}).a))
	require.Equal(t, 512, eager.MaxPayload(open(t, channel.Config{ThresholdPercent: 80}).a))
	require.Equal(t, 608, eager.MaxPayload(open(t, channel.Config{ThresholdPercent: 99}).a))
}

// TestSend_E5_NoRoomIsNoError, whether credits or the send queue are used up; what comes later is in order.
func TestSend_E5_NoRoomIsNoError(t *testing.T) {
	for _, depth := range []int{1, 3, 256} {
		l := open(t, channel.Config{})
		l.A.Depth = depth
		sends := []func(i int) (bool, error){
			func(i int) (bool, error) {
				return eager.TrySend(l.a, eager.Envelope{Tag: int32(i)}, pattern(i, i%300),
					sendFlags(i%2 == 0))
			},
			func(i int) (bool, error) {
				var m eager.Message
				m.Start(eager.Envelope{Tag: int32(i)}, [][]byte{pattern(i, i%300)})
				n, o, err := m.TrySend(l.a, sendFlags(i%2 == 0))
				require.Equal(t, map[channel.Outcome]int{channel.Done: i % 300}[o], n)
				require.Equal(t, o == channel.Done, m.Started() && m.Done())
				return o == channel.Done, err
			},
		}
		refused, got := 0, 0
		for i := 0; i < 500; {
			sent, err := sends[i/2%2](i)
			require.NoError(t, err)
			if sent {
				i++
				continue
			}
			refused++
			require.NoError(t, l.Drive())
			for {
				_, body, ok, err := l.b.Next()
				require.NoError(t, err)
				if !ok {
					break
				}
				env, payload, err := eager.Parse(body)
				require.NoError(t, err)
				require.Equal(t, int32(got), env.Tag)
				require.Equal(t, pattern(got, got%300), payload)
				l.b.Release()
				got++
			}
			l.turn(t)
			l.turn(t, l.a, l.b)
		}
		require.Positive(t, refused)
		require.Positive(t, got)
	}
}

// TestSend_ABrokenQueuePairIsAnError and nothing is said to be sent.
func TestSend_ABrokenQueuePairIsAnError(t *testing.T) {
	l := open(t, channel.Config{})
	l.A.Abort(transport.ErrPeerLost)
	sent, err := eager.TrySend(l.a, eager.Envelope{}, nil, 0)
	require.ErrorIs(t, err, transport.ErrState)
	require.False(t, sent)
	for _, elems := range [][][]byte{nil, {{1}}, {make([]byte, 500), make([]byte, 500)}} {
		var m eager.Message
		m.Start(eager.Envelope{}, elems)
		n, _, err := m.TrySend(l.a, 0)
		require.ErrorIs(t, err, transport.ErrState)
		require.Zero(t, n)
		require.False(t, m.Started())
		opened, err := m.TrySendHeader(l.a)
		require.ErrorIs(t, err, transport.ErrState)
		require.False(t, opened || m.Started())
	}
}

func TestSend_NoAllocationPerMessage(t *testing.T) {
	l := open(t, channel.Config{})
	payload, vec := pattern(0, 100), [][]byte{pattern(1, 30), pattern(2, 70)}
	var m eager.Message
	round := func() {
		if sent, err := eager.TrySend(l.a, eager.Envelope{Tag: 1}, payload, channel.FlagMore); !sent ||
			err != nil {
			t.Fatal(sent, err)
		}
		m.Start(eager.Envelope{Tag: 2}, vec)
		if n, o, err := m.TrySend(l.a, 0); n != 100 || o != channel.Done || err != nil {
			t.Fatal(n, o, err)
		}
		if err := l.Drive(); err != nil {
			t.Fatal(err)
		}
		for tag := range int32(2) {
			_, body, ok, err := l.b.Next()
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if env, payload, err := eager.Parse(body); err != nil || env.Tag != tag+1 || len(payload) != 100 {
				t.Fatal(env, err)
			}
			l.b.Release()
		}
		if _, err := l.b.Progress(); err != nil || l.Drive() != nil {
			t.Fatal(err)
		}
		if _, _, ok, err := l.a.Next(); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	require.Zero(t, testing.AllocsPerRun(500, round))
}

// FuzzParse: what is accepted is what Send writes; the rest is the peer's error.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 0x88, 9})
	f.Fuzz(func(t *testing.T, body []byte) {
		env, payload, err := eager.Parse(body)
		if len(body) < 8 || body[7] >= 0x80 {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.NoError(t, err)
		require.Equal(t, binary.LittleEndian.Uint32(body), env.Context)
		require.Equal(t, int32(binary.LittleEndian.Uint32(body[4:])), env.Tag)
		require.Equal(t, body[8:], payload)
	})
}

func sendFlags(more bool) channel.SendFlags {
	if more {
		return channel.FlagMore
	}
	return 0
}
