package channel_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
)

// letters is a body of n bytes that can be read in a transcript.
func letters(n int) []byte { return bytes.Repeat([]byte("abcdefghijklmnop"), n/16+1)[:n] }

func TestGolden_E12_OpenAndSmallMessages(t *testing.T) {
	l := open(t, channel.Config{})
	l.record()
	for _, c := range []*channel.Channel{l.a, l.b} {
		r := channeltest.ReadRing(c.Descriptor())
		l.Say("descriptor of %d bytes: slots of %d bytes, %d lines", len(c.Descriptor()), r.SlotSize, r.Lines)
	}
	l.Say("from no byte to a whole slot, and two that may travel together")
	for _, n := range []int{0, 1, 40, 41, l.a.MaxBody()} {
		require.True(t, put(t, l.a, channel.Eager, letters(n), false))
	}
	require.True(t, put(t, l.a, channel.RTS, letters(7), true))
	require.True(t, put(t, l.a, channel.Eager, letters(7), false))
	l.drive(t)
	got := take(t, l.b)
	require.Len(t, got, 7)
	l.Say("the reply tells that they were read")
	require.True(t, put(t, l.b, channel.Eager, letters(3), false))
	l.drive(t)
	require.Equal(t, [][]byte{letters(3)}, take(t, l.a))
	l.Golden(t, "small")
}

func TestGolden_E12_Wraps(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	l.record()
	send := func(from, to *channel.Channel, n int) {
		require.True(t, put(t, from, channel.Eager, letters(n), false))
		l.drive(t)
		require.Equal(t, [][]byte{letters(n)}, take(t, to))
	}
	l.Say("slots of 3 lines, 64 lines in all; messages of 1 to 3 lines that are answered: each finds all lines free")
	for i := range 6 {
		send(l.a, l.b, 40+64*(i%3))
		send(l.b, l.a, 1)
	}
	l.Say("messages of 3 lines without an answer, of which B has one unread whenever it tells: the last line is left out")
	for i := range 24 {
		require.True(t, put(t, l.a, channel.Eager, letters(104+64), false))
		l.drive(t)
		if i > 0 {
			_, body, ok, err := l.b.Next()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, letters(104+64), body)
			l.b.Release()
			progress(t, l.b)
			l.drive(t)
			require.Empty(t, take(t, l.a))
		}
	}
	require.NotContains(t, l.String(), "INVALID")
	l.Golden(t, "wraps")
}

func TestGolden_E12_CreditsAloneAndWithTraffic(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	l.record()
	send := func(from, to *channel.Channel, n int) {
		require.True(t, put(t, from, channel.Eager, letters(n), false))
		l.drive(t)
		require.Len(t, take(t, to), 1)
	}
	l.Say("one way: a CREDIT by itself for a quarter of the ring")
	for range 35 {
		send(l.a, l.b, 1)
		progress(t, l.b)
		progress(t, l.a)
		l.drive(t)
		require.Empty(t, take(t, l.a))
	}
	require.Equal(t, uint64(2), l.b.Stats().Credits)
	l.Say("both ways: every message carries it")
	for range 14 {
		send(l.a, l.b, 1)
		send(l.b, l.a, 1)
		progress(t, l.a)
		progress(t, l.b)
	}
	require.Equal(t, uint64(2), l.b.Stats().Credits)
	require.Zero(t, l.a.Stats().Credits)
	l.Golden(t, "credit")
}

func TestGolden_E12_ControlWhileDataStalls(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	l.record()
	l.Say("A sends data until there is no room, B likewise; nobody reads")
	for _, c := range []*channel.Channel{l.a, l.b} {
		for put(t, c, channel.Eager, letters(c.MaxBody()), false) {
		}
	}
	l.drive(t)
	l.Say("control messages still go")
	for put(t, l.a, channel.RTS, letters(4), false) {
	}
	l.drive(t)
	l.Say("B reads, and tells so though A has not read")
	require.NotEmpty(t, take(t, l.b))
	progress(t, l.b)
	l.drive(t)
	l.Say("A reads, and can send again")
	require.NotEmpty(t, take(t, l.a))
	require.True(t, put(t, l.a, channel.Eager, letters(l.a.MaxBody()), false))
	l.drive(t)
	require.Len(t, take(t, l.b), 1)
	l.Golden(t, "credit-stall")
}
