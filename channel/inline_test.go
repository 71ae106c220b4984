package channel_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

// placed reports whether the inline write alone sends a message of n bytes.
func placed(c *channel.Channel, n int) bool {
	return c.TryInline(channel.Eager, 1, make([]byte, n-8), false)
}

// toldAll has an end hear that its peer has read everything.
func (l *link) toldAll(t *testing.T) {
	l.drive(t)
	take(t, l.b)
	require.True(t, put(t, l.b, channel.Eager, letters(8), false))
	l.drive(t)
	require.Len(t, take(t, l.a), 1)
}

func TestInline_E12_IsAllThatAPingPongNeeds(t *testing.T) {
	l := openInline(t, channel.Config{})
	for _, lines := range []int{1, 2, 3, 4, 6} {
		for i := range 100 {
			for _, e := range [][2]*channel.Channel{{l.a, l.b}, {l.b, l.a}} {
				n := lines*64 - 24
				ok := placed(e[0], n)
				if i == 0 && !ok {
					require.True(t, put(t, e[0], channel.Eager, make([]byte, n), false))
				} else {
					require.True(t, ok)
				}
				l.drive(t)
				require.Len(t, take(t, e[1]), 1)
			}
		}
	}
}

func TestInline_E12_StartsNoWrapBeforeAllIsRead(t *testing.T) {
	l := openInline(t, channel.Config{})
	require.True(t, put(t, l.a, channel.Eager, make([]byte, 232), false))
	l.drive(t)
	require.False(t, placed(l.a, 8))
	l.toldAll(t)
	require.True(t, placed(l.a, 8))
	require.Len(t, take(t, l.b), 1)
}

func TestInline_E12_WhatASlotDoesNotTake(t *testing.T) {
	l := openInline(t, channel.Config{Phases: []int{192}})
	require.True(t, put(t, l.a, channel.Eager, letters(8), false))
	require.True(t, put(t, l.a, channel.Eager, letters(8), false))
	l.drive(t)
	require.False(t, placed(l.a, 169))
	require.True(t, placed(l.a, 168))
}

func TestInline_E12_MoreIsLeftToWhoGathers(t *testing.T) {
	for _, shared := range []bool{false, true} {
		a, _ := channeltest.OpenInline(t, channeltest.NewPair(), shared,
			func(e *channeltest.End) (*channel.Channel, error) {
				return channel.New(e.PD(), channel.Config{})
			})
		_, err := a.TrySendSlow(channel.Eager, 1, nil, 0)
		require.NoError(t, err)
		require.Equal(t, shared, a.TryInline(channel.Eager, 1, nil, true))
		require.True(t, a.TryInline(channel.Eager, 1, nil, false))
	}
}

func TestInline_E12_NothingOnceItHasEnded(t *testing.T) {
	for _, long := range []bool{false, true} {
		l := openInline(t, channel.Config{})
		if long {
			require.True(t, put(t, l.a, channel.Eager, make([]byte, 232), false))
			l.toldAll(t)
		} else {
			require.True(t, put(t, l.a, channel.Eager, letters(8), false))
			require.True(t, put(t, l.a, channel.Eager, letters(8), false))
		}
		require.NoError(t, l.a.Fail(errors.New("over")))
		require.False(t, placed(l.a, 8))
		sent, err := l.a.TrySendSlow(channel.Eager, 1, nil, 0)
		require.NoError(t, err)
		require.False(t, sent)
	}
}

var two = channel.Config{Phases: []int{192, 1024}}

// asks has an end ask for larger slots, in either way.
func (l *link) asks(t *testing.T, crowded bool) {
	if !crowded {
		_, err := l.a.GrowFor(&channel.Vector{Elems: [][]byte{make([]byte, 900)}}, 0)
		require.NoError(t, err)
		return
	}
	for range 64 {
		l.a.BatchOverflowed()
	}
	_, err := l.a.Progress()
	require.NoError(t, err)
}

func TestInline_E3_NothingAfterARequest(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		for _, first := range []int{8, 168} {
			l := openInline(t, two)
			for range 2 {
				require.True(t, put(t, l.a, channel.Eager, letters(first), false))
			}
			l.drive(t)
			l.asks(t, crowded)
			require.EqualValues(t, 1, l.a.Stats().EnlargesSent)
			l.drive(t)
			require.False(t, placed(l.a, 8))
			l.toldAll(t) // the request, too, by a message in front of the reply's being heard
			require.Equal(t, channel.DueResize, l.a.Due())
			require.False(t, placed(l.a, 8))
			ready, err := l.a.ResizeDone()
			require.NoError(t, err)
			require.True(t, ready)
			require.True(t, put(t, l.a, channel.Eager, letters(900), false))
			l.drive(t)
			require.Equal(t, [][]byte{letters(900)}, take(t, l.b))
		}
	}
}

// TestInline_E11_ARequestIsDueWhileCreditsAllowIt: at the end of a burst, as the next one takes them again.
func TestInline_E11_ARequestIsDueWhileCreditsAllowIt(t *testing.T) {
	l := openInline(t, two)
	for range 30 {
		require.True(t, put(t, l.a, channel.Eager, letters(8), false))
	}
	l.drive(t)
	l.asks(t, true)
	require.Zero(t, l.a.Stats().EnlargesSent)
	require.Equal(t, channel.DueSoon, l.a.Due())
	l.toldAll(t)
	require.Equal(t, channel.DueNow, l.a.Due())
	_, err := l.a.Progress()
	require.NoError(t, err)
	require.EqualValues(t, 1, l.a.Stats().EnlargesSent)
}

func TestInline_E3_NothingBeforeARequestThatWaits(t *testing.T) {
	l := openInline(t, two)
	for range 30 {
		require.True(t, put(t, l.a, channel.Eager, letters(8), false))
	}
	l.drive(t)
	l.asks(t, false)
	require.Zero(t, l.a.Stats().EnlargesSent)
	require.False(t, placed(l.a, 8))
	for range 30 {
		require.True(t, put(t, l.b, channel.Eager, letters(8), false))
	}
	l.drive(t)
	take(t, l.a)
	_, err := l.a.Progress()
	require.NoError(t, err)
	require.EqualValues(t, 1, l.a.Stats().Credits)
	l.drive(t)
	require.False(t, placed(l.a, 8), "after a CREDIT")
}

func TestInline_E6_NothingBeforeAnUnsentDescriptor(t *testing.T) {
	l := openInline(t, channel.Config{Phases: []int{192, 4000}, KeepSmall: true})
	l.enlarge(t, 4000)
	for range 2 {
		require.True(t, put(t, l.a, channel.Eager, letters(8), false))
	}
	l.drive(t)
	l.A.Depth = 1
	require.True(t, put(t, l.a, channel.Eager, letters(3000), false))
	l.drive(t)
	require.Equal(t, channel.DueResize, l.a.Due())
	require.False(t, placed(l.a, 8))
}

// TestInline_E12_TwiceInVain begins one wrap and no more.
func TestInline_E12_TwiceInVain(t *testing.T) {
	l := openInline(t, channel.Config{})
	require.True(t, put(t, l.a, channel.Eager, letters(200), false))
	l.toldAll(t)
	require.NoError(t, l.A.PostSend(&transport.SendWR{Op: transport.OpWrite}))
	require.False(t, placed(l.a, 8))
	require.False(t, placed(l.a, 8))
	l.A.Drop(1)
	sent, err := l.a.TrySendSlow(channel.Eager, 1, nil, 0)
	require.NoError(t, err)
	require.True(t, sent)
	l.drive(t)
	require.Len(t, take(t, l.b), 1)
}

// TestInline_E12_ReservedAndThenAnotherWrap has the inline write begin a wrap without success: what was
// reserved before is not sent out of other lines than it was written to.
func TestInline_E12_ReservedAndThenAnotherWrap(t *testing.T) {
	l := openInline(t, channel.Config{})
	sent, err := l.a.TrySendSlow(channel.Eager, 1, make([]byte, 200), 0) // 4 lines
	require.NoError(t, err)
	require.True(t, sent)
	copy(l.a.Reserve(16), "sixteen bytes!!!") // at line 4
	l.toldAll(t)
	require.NoError(t, l.A.PostSend(&transport.SendWR{Op: transport.OpRead})) // something waits before it
	require.False(t, l.a.TryInline(channel.Eager, 7, nil, false))
	if err := l.a.Commit(channel.Eager, false); err != nil { // as if the lines had been taken by a CREDIT
		require.ErrorIs(t, err, transport.ErrInvalid)
		return
	}
	l.A.Drop(1)
	l.drive(t)
	require.Equal(t, [][]byte{[]byte("sixteen bytes!!!")}, take(t, l.b))
}

// A vector of one element goes from the caller's data too, after other messages and before.
func TestInline_E12_AVectorOfOneElement(t *testing.T) {
	l := openInline(t, channel.Config{})
	for i := range 100 {
		v := &channel.Vector{Elems: [][]byte{letters(40)}}
		n, o, err := v.TrySendWhole(l.a, channel.Eager, letters(8), 0)
		require.NoError(t, err)
		require.Equal(t, channel.Done, o)
		require.Equal(t, 40, n)
		require.True(t, v.Done())
		require.Equal(t, i+1, l.A.Inlined)
		got := take(t, l.b)
		require.Len(t, got, 1)
		require.True(t, put(t, l.b, channel.Eager, letters(8), false))
		l.drive(t)
		require.Len(t, take(t, l.a), 1)
	}
}
