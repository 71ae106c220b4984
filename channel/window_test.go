package channel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
)

// windowLines is how many lines a window has.
const windowLines = 256

// busyPollingLink opens a link of two that poll busily, with a large ring in both directions. last tells the
// end of what an end has written last into it, in lines.
func busyPollingLink(t *testing.T) (l *link, last map[*channeltest.End]int) {
	l = openInline(t, channel.Config{Phases: []int{640, 16384}, BusyPolling: true})
	require.False(t, l.a.LiftWindow(), "the small ring is no larger than a window")
	l.enlarge(t, 16384)
	last = map[*channeltest.End]int{}
	l.Carried = func(from *channeltest.End, wr *transport.SendWR, data []byte) {
		if len(data) > 0 {
			last[from] = (int(wr.Remote[0].Offset) + len(data)) / 64
		}
	}
	return l, last
}

// stream puts messages of so many lines until there is no room, or until there are enough.
func stream(t *testing.T, c *channel.Channel, lines, limit int) (n int) {
	for ; n < limit; n++ {
		payload := make([]byte, lines*64-32)
		if c.TryInline(channel.Eager, 1, payload, false) {
			continue
		}
		if sent, err := c.TrySendSlow(channel.Eager, 1, payload, 0); !sent {
			require.NoError(t, err)
			break
		}
	}
	return n
}

const many = 1 << 20

// reads has an end take so many messages, and tell what it finds due.
func (l *link) reads(t *testing.T, c *channel.Channel, n int) {
	l.drive(t)
	for range n {
		_, _, ok, err := c.Next()
		require.NoError(t, err)
		require.True(t, ok)
		c.Release()
	}
	progress(t, c)
	l.drive(t)
}

func TestStream_E12_KeepsToTheFirstLines(t *testing.T) {
	for _, lines := range []int{1, 7, 16} {
		l, last := busyPollingLink(t)
		for range 300 {
			n := stream(t, l.a, lines, many)
			require.Positive(t, n, "the peer has read all and told it: messages of %d lines", lines)
			require.LessOrEqual(t, last[l.A], windowLines)
			l.reads(t, l.b, n)
			require.Empty(t, take(t, l.a))
		}
		require.GreaterOrEqual(t, int(l.b.Stats().Credits), 300)
		require.Zero(t, l.a.Stats().Stalls)
		require.Equal(t, 1, l.a.Phase())
	}
}

// TestStream_E12_CreditForAQuarterOfTheWindow is what lets both sides be at work at the same time.
func TestStream_E12_CreditForAQuarterOfTheWindow(t *testing.T) {
	l, _ := busyPollingLink(t)
	stream(t, l.a, 16, 16)
	l.reads(t, l.b, 3)
	require.Equal(t, channel.DueNothing, l.b.Due())
	require.Zero(t, l.b.Stats().Credits)
	_, _, _, err := l.b.Next()
	require.NoError(t, err)
	l.b.Release()
	require.Equal(t, channel.DueNow, l.b.Due())
	l.reads(t, l.b, 0)
	require.EqualValues(t, 1, l.b.Stats().Credits)
	require.Empty(t, take(t, l.a))
	require.Equal(t, (64-12)/16, stream(t, l.a, 16, many), "in another wrap, and some lines stay free")
}

func TestStream_E12_LeavesLinesForTheChannelItself(t *testing.T) {
	l, last := busyPollingLink(t)
	stream(t, l.a, 16, 16)
	l.reads(t, l.b, 1)
	require.True(t, put(t, l.b, channel.Eager, nil, false)) // tells of 16 lines
	l.drive(t)
	require.Len(t, take(t, l.a), 1)
	require.Zero(t, stream(t, l.a, 5, many))
	require.Equal(t, 1, stream(t, l.a, 4, many))
	require.Equal(t, 4, last[l.A])
}

// TestStream_E12_NoHurryWhereThereIsNoRoom: a CREDIT that need not go yet takes none of the lines that are
// kept for one that must.
func TestStream_E12_NoHurryWhereThereIsNoRoom(t *testing.T) {
	l, _ := busyPollingLink(t)
	stream(t, l.b, 43, many)
	require.True(t, l.b.LiftWindow())
	stream(t, l.b, 1, many) // up to the last line of data
	stream(t, l.a, 16, 8)
	l.reads(t, l.b, 8)
	require.Zero(t, l.b.Stats().Credits)
	for range dataReserve / 2 {
		require.True(t, put(t, l.b, channel.RTS, nil, false))
	}
	require.False(t, put(t, l.b, channel.RTS, nil, false))
	require.True(t, l.a.LiftWindow())
	stream(t, l.a, 16, 31)
	l.reads(t, l.b, 31)
	require.Zero(t, l.b.Stats().Credits)
	stream(t, l.a, 16, 1)
	l.reads(t, l.b, 1)
	require.EqualValues(t, 1, l.b.Stats().Credits, "now it must")
}

func TestStream_E12_LongMessagesHaveTheRing(t *testing.T) {
	for _, lines := range []int{17, 43, 256} {
		l, last := busyPollingLink(t)
		n := stream(t, l.a, lines, many)
		require.Greater(t, last[l.A], 2048-12-lines)
		credits := l.b.Stats().Credits
		for range n {
			l.reads(t, l.b, 1)
		}
		require.LessOrEqual(t, l.b.Stats().Credits-credits, uint64(4), "there is no hurry for any")
	}
}

func TestStream_E12_LeftForAPeerThatIsBusy(t *testing.T) {
	l, last := busyPollingLink(t)
	n := stream(t, l.a, 16, many)
	require.Equal(t, 16, n)
	require.True(t, l.a.LiftWindow())
	n += stream(t, l.a, 16, many)
	require.Greater(t, last[l.A], 2048-12-16)
	require.False(t, l.a.LiftWindow(), "there is no more")
	for range 2 { // what it has been told of lets it begin a wrap, and that is narrow again
		l.reads(t, l.b, n)
		require.Empty(t, take(t, l.a))
		n = stream(t, l.a, 16, many)
		require.LessOrEqual(t, last[l.A], windowLines)
	}
}

func TestStream_E12_NotInASmallRingNorApart(t *testing.T) {
	for _, cfg := range []channel.Config{{Phases: []int{640}, BusyPolling: true},
		{Phases: []int{640, 16384}}} {
		l := openInline(t, cfg)
		if len(cfg.Phases) > 1 {
			l.enlarge(t, 16384)
		}
		require.Positive(t, stream(t, l.a, 1, many))
		require.Positive(t, l.a.Stats().Stalls)
		require.False(t, l.a.LiftWindow())
	}
}

// TestStream_E12_ALongMessageAfterAWindow: the wrap before the present one has lines of which the sender
// has not been told, too few for the usual CREDIT, and ended so early that the message does not fit what is
// before those. The receiver tells of them as soon as it has come to the present wrap.
func TestStream_E12_ALongMessageAfterAWindow(t *testing.T) {
	for _, takes := range []bool{false, true} {
		l, last := busyPollingLink(t)
		stream(t, l.a, 16, 15)
		stream(t, l.a, 15, 1)
		l.reads(t, l.b, 15)
		require.Empty(t, take(t, l.a))
		require.Equal(t, 2, stream(t, l.a, 1, 2))
		require.Equal(t, 1, last[l.A], "in another wrap")
		long := letters(16384 - 24)
		require.False(t, put(t, l.a, channel.Eager, long, false))
		l.reads(t, l.b, 2)
		require.Equal(t, channel.DueNothing, l.b.Due(), "the new wrap has not been seen")
		if takes {
			l.b.Expect(40)
			_, ok := l.b.TryRecv(channel.Eager, 1, make([]byte, 100))
			require.True(t, ok)
		} else {
			_, _, _, err := l.b.Next()
			require.NoError(t, err)
			l.b.Release()
		}
		require.Equal(t, channel.DueNow, l.b.Due())
		l.reads(t, l.b, 0)
		require.Empty(t, take(t, l.a))
		require.True(t, put(t, l.a, channel.Eager, long, false))
		l.drive(t)
		require.Equal(t, [][]byte{long}, take(t, l.b))
	}
}

// TestStream_E12_AWrapThatCameToNothing: the first message of a wrap does not go, since the send queue is
// full; then there is no such wrap, and a long message has the rest of the one before.
func TestStream_E12_AWrapThatCameToNothing(t *testing.T) {
	l, _ := busyPollingLink(t)
	stream(t, l.a, 16, 16)
	l.reads(t, l.b, 15)
	require.Empty(t, take(t, l.a))
	require.NoError(t, l.B.PostRecv(&transport.RecvWR{}))
	// after it nothing can be placed
	require.NoError(t, l.A.PostSend(&transport.SendWR{Op: transport.OpSend}))
	l.A.Depth = 1
	require.Zero(t, stream(t, l.a, 16, many))
	l.A.Depth = 256
	l.drive(t)
	require.True(t, put(t, l.a, channel.Eager, letters(16384-24), false))
}
