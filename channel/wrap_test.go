package channel_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// unread are the messages of a ring that have been written and not yet read, in their order.
type unread struct {
	ring     channeltest.Ring
	messages []channeltest.Message
	short    int // wraps that ended where another message would have fitted
	crowded  int // messages written while some of the wrap before were unread
}

// written notes a message, which may touch no line of those.
func (u *unread) written(t *testing.T, offset uint64, data []byte) {
	m, err := u.ring.ReadMessage(offset, data)
	require.NoError(t, err)
	for _, other := range u.messages {
		require.True(t, m.Line+m.Lines <= other.Line || other.Line+other.Lines <= m.Line,
			"wrap %d line %d+%d is written over wrap %d line %d+%d",
			m.Wrap, m.Line, m.Lines, other.Wrap, other.Line, other.Lines)
		if m.Wrap != other.Wrap {
			u.crowded++
		}
	}
	if m.PrevEnd > 0 && m.PrevEnd+m.Lines <= int(u.ring.Lines) {
		u.short++
	}
	u.messages = append(u.messages, m)
}

// read notes that the next message of the layer above has been read, and with it what the channel said before
// it.
func (u *unread) read(t *testing.T, body []byte) {
	for i, m := range u.messages {
		if m.Kind >= data {
			if m.Kind != marker {
				require.Equal(t, m.Body, body)
			}
			u.messages = u.messages[i+1:]
			return
		}
	}
	t.Fatal("a message that was not written")
}

// marker is the kind of a line that stands for a message in the large ring.
const marker = 11

// openInline opens a link whose messages can be placed at once, in the peer's memory.
func openInline(t *testing.T, cfg channel.Config) *link {
	l := &link{Pair: channeltest.NewPair()}
	l.a, l.b = channeltest.OpenInline(t, l.Pair, true, func(e *channeltest.End) (*channel.Channel,
		error) {
		return channel.New(e.PD(), cfg)
	})
	return l
}

// TestWrap_E12_NothingUnreadIsWrittenOver has both ends send and read in every order, dialogues and streams,
// and keeps account of every line.
func TestWrap_E12_NothingUnreadIsWrittenOver(t *testing.T) {
	short, crowded, placed, beside, narrow := 0, 0, 0, 0, 0
	for seed := range testlength.Of[uint64](160, 40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		cfg := channel.Config{Phases: []int{100 + rng.IntN(1901)}, KeepSmall: seed%4 == 0,
			BusyPolling: seed%4 == 1}
		if cfg.KeepSmall {
			// and all that a slot of the first does not take goes beside
			cfg.Phases = append(cfg.Phases, 4000)
		}
		if cfg.BusyPolling {
			cfg.Phases = append(cfg.Phases, 3000+rng.IntN(14000)) // whose ring is larger than a window
		}
		l := openInline(t, cfg)
		if seed%8 == 0 || seed%4 == 2 {
			l = open(t, cfg)
		}
		ends := [2]*channel.Channel{l.a, l.b}
		var rings [2]unread // into which the ends write
		for i := range rings {
			rings[i].ring = channeltest.ReadRing(ends[1-i].Descriptor())
		}
		l.Carried = func(from *channeltest.End, wr *transport.SendWR, data []byte) {
			i := 0
			if from == l.B {
				i = 1
			}
			switch to := wr.Remote[0]; {
			case cfg.BusyPolling && rings[1-i].ring.SlotSize < 3000 &&
				to.Offset >= 64*uint64(rings[i].ring.Lines):
				if ring, ok := answered(data); ok { // the peer has asked for the larger one
					rings[1-i] = unread{ring: ring}
				}
			case uint64(to.Key) != rings[i].ring.Key:
				beside++
			case to.Offset < 64*uint64(rings[i].ring.Lines): // after the ring replies land
				rings[i].written(t, to.Offset, append([]byte{}, data...))
			}
		}
		if len(cfg.Phases) > 1 {
			l.enlarge(t, cfg.Phases[1])
			for i := range rings { // the request and what came before have been read
				rings[i].messages = nil
			}
		}
		drive := func() { l.drive(t) }
		if cfg.BusyPolling { // some wait in a short send queue, after which nothing can be placed
			drive = func() {
				if rng.IntN(3) > 0 {
					l.drive(t)
				}
			}
		}
		reads := 1 + rng.IntN(8) // of ten steps: from streams that wait for room to dialogues
		for step := range 2000 {
			if step%100 == 99 {
				l.settles(t, &rings)
				if cfg.BusyPolling {
					l.A.Depth, l.B.Depth = 1+rng.IntN(3), 1+rng.IntN(300)
				}
			}
			i := rng.IntN(2)
			if seed%16 == 5 && rng.IntN(50) == 0 {
				ends[i].AskTakeover(rng.IntN(2) == 0)
			}
			if rng.IntN(10) >= reads {
				kind, n := channel.Eager, rng.IntN(ends[i].MaxBody()+1)
				if cfg.BusyPolling && rng.IntN(100) > 0 {
					n = rng.IntN(1500)
				}
				if rng.IntN(4) == 0 {
					kind, n = channel.RTS, rng.IntN(20)
				}
				switch rng.IntN(4) {
				case 0:
					ends[i].Reserve(n) // and thinks better of it
				case 1:
					reserve := ends[i].Reserve
					if kind == channel.RTS {
						reserve = ends[i].ReserveControl
					}
					if body := reserve(n); body != nil {
						copy(body, letters(n))
						if err := ends[i].Commit(kind, rng.IntN(2) == 0); !errors.Is(err,
							transport.ErrQueueFull) {
							require.NoError(t, err)
						}
					}
				default:
					first, rest := wordcopy.Get(letters(wordcopy.Size), 0),
						letters(n + wordcopy.Size)[wordcopy.Size:max(wordcopy.Size, n)]
					if !ends[i].TryInline(kind, first, rest, false) && rng.IntN(4) > 0 {
						sent, err := ends[i].TrySendSlow(kind, first, rest, 0)
						require.NoError(t, err)
						if !sent && rng.IntN(2) == 0 {
							sent, err = ends[i].TrySendSlow(kind, first, rest, channel.FlagBeyondWindow)
							require.NoError(t, err)
							if sent {
								narrow++
							}
						}
					}
				}
				drive()
				continue
			}
			_, body, ok, err := ends[i].Next()
			require.NoError(t, err)
			if ok {
				rings[1-i].read(t, body)
				ends[i].Release()
			} else {
				rings[1-i].messages = nil
			}
			_, err = ends[i].Progress()
			require.NoError(t, err)
			drive()
		}
		l.settles(t, &rings)
		short += rings[0].short + rings[1].short
		crowded += rings[0].crowded + rings[1].crowded
		placed += l.A.Inlined + l.B.Inlined
	}
	require.Greater(t, short, 1000)
	require.Greater(t, crowded, 1000)
	require.Greater(t, placed, 1000)
	require.Greater(t, beside, 1000)
	require.Greater(t, narrow, 50)
}

// settles has both ends read everything, and tell what is due. Then the longest message finds room.
func (l *link) settles(t *testing.T, rings *[2]unread) {
	l.A.Depth, l.B.Depth = 256, 256
	for range 4 {
		for i, c := range []*channel.Channel{l.a, l.b} {
			l.drive(t)
			take(t, c)
			rings[1-i].messages = nil
			progress(t, c)
		}
	}
	l.drive(t)
	take(t, l.a)
	require.NotNil(t, l.a.Reserve(l.a.MaxBody()))
	require.NotNil(t, l.b.Reserve(l.b.MaxBody()))
}

// answered is the ring that a reply describes, if that is what was written.
func answered(data []byte) (channeltest.Ring, bool) {
	if len(data) != 64 {
		return channeltest.Ring{}, false
	}
	ack, _, ring, err := channeltest.ReplySlot{Generation: binary.LittleEndian.Uint64(data)}.ReadReply(data)
	return ring, ack && err == nil
}

// TestWrap_E12_DataThatIsPlacedLeavesRoomToo for the control messages and the CREDITs that come after it,
// wherever in a wrap it ends.
func TestWrap_E12_DataThatIsPlacedLeavesRoomToo(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 10))
		l := openInline(t, channel.Config{Phases: []int{192}})
		for range 20 {
			for { // until there is no room
				sent, err := l.a.TrySendSlow(channel.Eager, 1, make([]byte, rng.IntN(150)), 0)
				require.NoError(t, err)
				if !sent {
					break
				}
			}
			for range dataReserve / 2 {
				require.True(t, put(t, l.a, channel.RTS, nil, false),
					"seed %d: a control message finds no room", seed)
			}
			l.drive(t)
			for range 1 + rng.IntN(60) { // some of it is read, and told
				_, _, _, err := l.b.Next()
				require.NoError(t, err)
				l.b.Release()
			}
			require.True(t, put(t, l.b, channel.RTS, nil, false))
			l.drive(t)
			require.Len(t, take(t, l.a), 1)
			progress(t, l.a)
			l.drive(t)
			for range 6 { // all of it, so that the control lines are free
				take(t, l.b)
			}
			require.True(t, put(t, l.b, channel.RTS, nil, false))
			l.drive(t)
			require.Len(t, take(t, l.a), 1)
			for range rng.IntN(5) {
				require.True(t, put(t, l.a, channel.Eager, nil, false))
			}
			l.drive(t)
			if rng.IntN(2) == 0 {
				take(t, l.b)
			}
		}
	}
}

// TestWrap_E12_OfTwoThatAreThereTheFirstIsRead although what began another wrap was placed before the last
// message of this one.
func TestWrap_E12_OfTwoThatAreThereTheFirstIsRead(t *testing.T) {
	for _, take := range []bool{false, true} {
		v := newVictim(t, channel.Config{})
		first := binary.LittleEndian.Uint64(letters(8))
		next := func() []byte {
			if take { // what it leaves is for Next
				buf := make([]byte, 100)
				if k, ok := v.TryRecv(channel.Eager, first, buf); ok {
					return append(letters(8), buf[:k]...)
				}
			}
			_, body, ok, err := v.Next()
			require.NoError(t, err)
			v.Release()
			if !ok {
				return nil
			}
			return body
		}
		v.place(0, 0, header(0, data), letters(20))
		require.Equal(t, letters(20), next())
		v.place(0, 1, header(0, data)|after(3), letters(30))
		require.Nil(t, next(), "a message of another wrap is read before the one that was sent before it")
		v.nothing(t, "another wrap")
		require.Zero(t, v.Stats().HeadsWithoutTail)
		v.place(1, 0, header(0, data), letters(70))
		require.Equal(t, letters(70), next())
		require.Equal(t, letters(30), next())
		require.Nil(t, next())
	}
}

// TestWrap_E12_PayloadLikeAHeadHidesNoWrap: what stands after the last message looks like a head by chance,
// and is never written over, since the next message is of another wrap.
func TestWrap_E12_PayloadLikeAHeadHidesNoWrap(t *testing.T) {
	for _, take := range []bool{false, true} {
		v := newVictim(t, channel.Config{})
		v.place(0, 0, header(0, data), letters(20))
		v.reads(t, letters(20))
		binary.LittleEndian.PutUint64(v.memory[64:], v.Head(0, 300))
		require.True(t, v.Ready())
		v.nothing(t, "a head")
		v.place(0, 1, header(0, data)|after(1), letters(30))
		if take { // it may leave the message to Next
			v.Expect(30)
			buf := make([]byte, 100)
			if n, ok := v.TryRecv(channel.Eager, binary.LittleEndian.Uint64(letters(8)), buf); ok {
				require.Equal(t, letters(30)[8:], buf[:n])
				continue
			}
		}
		v.reads(t, letters(30))
	}
}

// TestWrap_E12_WhatWasExpectedEndsWithItsWrap: once Next has gone on to another wrap, Take does not go back
// to where the message was expected.
func TestWrap_E12_WhatWasExpectedEndsWithItsWrap(t *testing.T) {
	v := newVictim(t, channel.Config{})
	v.place(0, 0, header(0, data), letters(20))
	v.reads(t, letters(20))
	v.Expect(30)
	v.place(0, 1, header(0, data)|after(1), letters(20))
	_, _, ok, err := v.Next() // and keeps it
	require.NoError(t, err)
	require.True(t, ok)
	v.place(1, 0, header(0, data), letters(30)) // of the wrap that has ended
	n, ok := v.TryRecv(channel.Eager, wordcopy.Get(letters(wordcopy.Size), 0), make([]byte, 100))
	require.True(t, ok)
	require.Equal(t, 12, n)
}
