package channel_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// TestRing_E12_NoAllocationPerMessage counts both ends, with wraps and CREDITs.
func TestRing_E12_NoAllocationPerMessage(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	i := 0
	round := func() {
		for _, c := range [2]*channel.Channel{l.a, l.a} {
			i++
			body := c.Reserve(i % (c.MaxBody() + 1))
			if body == nil || c.Commit(channel.Eager, false) != nil || l.Drive() != nil {
				t.Fatal("no room")
			}
			if _, _, ok, err := l.b.Next(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			l.b.Release()
			if owing, err := l.b.Progress(); owing || err != nil || l.Drive() != nil {
				t.Fatal(owing, err)
			}
			if _, _, ok, err := l.a.Next(); ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	require.Zero(t, testing.AllocsPerRun(1000, round))
	require.Greater(t, l.b.Stats().Credits, uint64(100))
}

// TestRing_E12_ReserveThatIsNotCommittedCostsNothing, however often and with whatever sizes.
func TestRing_E12_ReserveThatIsNotCommittedCostsNothing(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	for i := range 100 {
		for n := range l.a.MaxBody() + 1 {
			require.Len(t, l.a.Reserve(n), n)
		}
		require.True(t, put(t, l.a, channel.Eager, letters(i), false))
		l.drive(t)
		require.Equal(t, [][]byte{letters(i)}, take(t, l.b))
		progress(t, l.b)
		l.drive(t)
		require.Empty(t, take(t, l.a))
	}
}

// TestRing_E12_CreditBetweenReserveAndCommit takes the lines that were reserved: Commit says so, and nothing
// is sent where another message is.
func TestRing_E12_CreditBetweenReserveAndCommit(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	for range 16 {
		require.True(t, put(t, l.b, channel.Eager, letters(1), false))
	}
	l.drive(t)
	require.Len(t, take(t, l.a), 16)
	copy(l.a.Reserve(5), "first")
	progress(t, l.a)
	require.Equal(t, uint64(1), l.a.Stats().Credits)
	require.ErrorIs(t, l.a.Commit(channel.Eager, false), transport.ErrInvalid)
	require.True(t, put(t, l.a, channel.Eager, []byte("again"), false))
	l.drive(t)
	require.Equal(t, [][]byte{[]byte("again")}, take(t, l.b))
}

// unordered is a protection domain whose provider does not place the tail of a Write last.
type unordered struct{ transport.PD }

func (u unordered) DeviceAttr() transport.DeviceAttr {
	a := u.PD.DeviceAttr()
	a.TailLast = false
	return a
}

// TestNew_WantsTailsLast: without that a message could be taken for whole that is not.
func TestNew_WantsTailsLast(t *testing.T) {
	pd := channeltest.NewPair().A.PD()
	_, err := channel.New(unordered{pd}, channel.Config{})
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.ErrorContains(t, err, `provider "pair" does not place the last bytes of a Write last`)
}

// TestRing_E12_WhatIsRefused: a body of an impossible size, Commit of nothing, twice, or of an inner kind. It
// leaves no trace.
func TestRing_E12_WhatIsRefused(t *testing.T) {
	l := open(t, channel.Config{})
	require.Nil(t, l.a.Reserve(-1))
	require.Nil(t, l.a.Reserve(l.a.MaxBody()+1))
	require.Nil(t, l.a.ReserveControl(l.a.MaxBody()+1))
	require.ErrorIs(t, l.a.Commit(channel.Eager, false), transport.ErrInvalid)
	require.NotNil(t, l.a.Reserve(1))
	for _, k := range []channel.Kind{0, 1, credit, channel.Eager - 2, channel.Eager - 1, channel.Batch + 1,
		channel.Part + 1, 200} {
		require.ErrorIs(t, l.a.Commit(k, false), transport.ErrInvalid)
	}
	require.NoError(t, l.a.Commit(channel.Eager, false))
	for _, shared := range []bool{false, true} {
		a, _ := channeltest.OpenInline(t, channeltest.NewPair(), shared,
			func(e *channeltest.End) (*channel.Channel, error) {
				return channel.New(e.PD(), channel.Config{})
			})
		for range 2 { // before TrySend knows which lines are free, and after
			for _, k := range []channel.Kind{0, 1, credit, channel.Eager - 1, channel.Batch + 1,
				channel.Part + 1} {
				sent, err := a.TrySendSlow(k, 1, nil, 0)
				require.ErrorIs(t, err, transport.ErrInvalid, "%v", k)
				require.False(t, sent)
			}
			sent, err := a.TrySendSlow(channel.Eager, 1, nil, 0)
			require.NoError(t, err)
			require.True(t, sent)
		}
	}
	require.ErrorIs(t, l.a.Commit(channel.Eager, false), transport.ErrInvalid)
	require.ErrorIs(t, l.a.Open(l.A, l.b.Descriptor()), transport.ErrState)
	l.drive(t)
	require.Len(t, take(t, l.b), 1)
	l.b.Release()
	require.Equal(t, uint64(1), l.b.Stats().Received)
}

// TestRing_E12_FullSendQueue: nothing is lost or sent twice when the queue pair takes one request at a time.
func TestRing_E12_FullSendQueue(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	l.A.Depth, l.B.Depth = 1, 1
	full, got := 0, 0
	for sent := 0; sent < 200; {
		if body := l.a.Reserve(sent % 150); body != nil {
			copy(body, letters(len(body)))
			err := l.a.Commit(channel.Eager, false)
			if err == nil {
				sent++
				continue // so that the next one finds the queue full
			}
			require.ErrorIs(t, err, transport.ErrQueueFull)
			full++
		}
		l.drive(t)
		for _, body := range take(t, l.b) {
			require.Equal(t, letters(got%150), body)
			got++
		}
		progress(t, l.b)
		l.drive(t)
		require.Empty(t, take(t, l.a))
	}
	require.Positive(t, full)
	l.drive(t)
	require.Equal(t, 200-got, len(take(t, l.b)))
}

// TestRing_E1_RegisteredMemory: all that is registered at an end is within 16 KiB for every size of the first
// slots, and the counter says what there is.
func TestRing_E1_RegisteredMemory(t *testing.T) {
	for slot := 100; slot <= 2000; slot++ {
		l := open(t, channel.Config{Phases: []int{slot}})
		ring := channeltest.ReadRing(l.a.Descriptor())
		require.Equal(t, 2, l.A.Regions())
		require.Equal(t, 2*64*int(ring.Lines+2), l.a.Stats().Registered)
		require.LessOrEqual(t, l.a.Stats().Registered, 16<<10)
	}
}

// FuzzDescriptor: what is accepted is what Append writes, and New would make such a ring.
func FuzzDescriptor(f *testing.F) {
	d := channel.Descriptor{Phases: []int{640, 16384}, Key: 1 << 60, Generation: 1<<63 + 5}
	f.Add(d.Append(nil))
	f.Add(channel.Descriptor{Phases: []int{2000}}.Append(nil))
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{5, 0, 0})
	f.Add(channel.Descriptor{Phases: []int{99}}.Append(nil))
	f.Add(channel.Descriptor{Phases: []int{640, 640}}.Append(nil))
	f.Add(channel.Descriptor{Phases: []int{640, 1 << 31}}.Append(nil))
	f.Add(channel.Descriptor{}.Append(nil))
	pd := channeltest.NewPair().A.PD()
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := channel.ParseDescriptor(b)
		if err != nil {
			if len(b) >= 2 && (b[0] != 11 || b[1] != 0) {
				require.ErrorIs(t, err, transport.ErrVersion)
			} else {
				require.ErrorIs(t, err, transport.ErrProtocol)
			}
			return
		}
		require.Equal(t, b, d.Append(nil))
		c, err := channel.New(pd, channel.Config{Phases: d.Phases})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

// TestDescriptor_EveryFieldComesBack, and what cannot be is refused.
func TestDescriptor_EveryFieldComesBack(t *testing.T) {
	d := channel.Descriptor{Phases: []int{192, 1000, 200_000}, Key: 0x1122334455667788,
		Generation: 0x99aabbccddeeff01}
	b := d.Append([]byte("before"))[6:]
	got, err := channel.ParseDescriptor(b)
	require.NoError(t, err)
	require.Equal(t, d, got)
	require.Equal(t, channeltest.Ring{SlotSize: 192, Lines: 64, Key: uint64(d.Key),
		Generation: d.Generation}, channeltest.ReadRing(b))
	for i := range b {
		_, err := channel.ParseDescriptor(b[:i])
		require.ErrorIs(t, err, transport.ErrProtocol, "the first %d bytes", i)
	}
	_, err = channel.ParseDescriptor(append(b, 0))
	require.ErrorIs(t, err, transport.ErrProtocol)
	for i := range 4 { // version, number of phases, flags
		b[i] ^= 2
		_, err := channel.ParseDescriptor(b)
		require.Error(t, err, "byte %d", i)
		b[i] ^= 2
	}
	d.KeepSmall = true
	got, err = channel.ParseDescriptor(d.Append(nil))
	require.NoError(t, err)
	require.Equal(t, d, got)
	for _, phases := range [][]int{
		{}, {99}, {200_001}, {640, 640}, {2000, 1000}, {640, 999}, {640, 200_001}, {640, 16384, 16383},
		{1<<32 - 1},
		{100, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007},
	} {
		d.Phases = phases
		_, err := channel.ParseDescriptor(d.Append(nil))
		require.ErrorIs(t, err, transport.ErrProtocol, "%v", phases)
	}
}

// TestOpen_PeerWithOtherPhases is refused, and the channel can be opened with another.
func TestOpen_PeerWithOtherPhases(t *testing.T) {
	p := channeltest.NewPair()
	a, err := channel.New(p.A.PD(), channel.Config{Phases: []int{640, 16384}})
	require.NoError(t, err)
	for _, phases := range [][]int{{640}, {640, 16384, 20000}, {641, 16384}} {
		err := a.Open(p.A, channel.Descriptor{Phases: phases, Key: 1, Generation: 1}.Append(nil))
		require.ErrorIs(t, err, transport.ErrInvalid)
		require.ErrorContains(t, err, "all ranks of a job need the same")
		require.Equal(t, channel.StateNew, a.State())
		require.Equal(t, 1, p.A.Regions())
	}
	require.NoError(t, a.Open(p.A, channel.Descriptor{Phases: []int{640, 16384}, Key: 1,
		Generation: 1}.Append(nil)))
	require.NoError(t, a.Close())
}

// TestRefusePayload_IsHeardWithTheNextMessage, whatever its kind, and taken back by the one after it.
func TestRefusePayload_IsHeardWithTheNextMessage(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	for _, on := range []bool{true, false, true} {
		l.b.RefusePayload(on)
		require.NotEqual(t, on, l.a.PeerRefusesPayload())
		require.True(t, put(t, l.b, channel.RTS, nil, false))
		l.drive(t)
		require.Len(t, take(t, l.a), 1)
		require.Equal(t, on, l.a.PeerRefusesPayload())
		require.False(t, l.b.PeerRefusesPayload())
	}
	l.b.RefusePayload(false)
	for l.b.Stats().Credits == 0 { // nothing but a CREDIT goes that way
		require.True(t, put(t, l.a, channel.Eager, nil, false))
		l.drive(t)
		require.Len(t, take(t, l.b), 1)
		progress(t, l.b)
	}
	require.True(t, l.a.PeerRefusesPayload())
	l.drive(t)
	require.Empty(t, take(t, l.a))
	require.False(t, l.a.PeerRefusesPayload())
}

// FuzzRing is a peer that writes what it likes, wherever it likes: bytes that make no sense, and messages
// that do but for one thing. Each instruction is five bytes: what, line, length, kind and header.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 0, 0, 1, 9, 3, 0, 2, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 5, 3, 0, 1, 3, 250, 3, 0})
	f.Add([]byte{0, 23, 0, 3, 0, 3, 0, 0, 0, 0, 4, 5, 6, 7, 8, 5, 20, 20, 1, 0})
	f.Add([]byte{0, 0, 168, 3, 0, 0, 3, 168, 3, 0, 0, 6, 168, 3, 0, 6, 0, 0, 0, 0, 0, 9, 255, 3, 9})
	// no room, taken, too short to be taken
	f.Add([]byte{0, 0, 21, 5, 0, 8, 0, 0, 1, 12, 8, 0, 9, 0, 13, 0, 1, 5, 5, 0, 8, 0, 5, 0, 255})
	// with credit for what was not sent
	f.Add([]byte{0, 0, 21, 5, 9, 8, 0, 21, 0, 255})
	// with the wish to hold
	f.Add([]byte{5, 0, 21, 5, 16, 8, 0, 21, 0, 255})
	// with what no header has
	f.Add([]byte{5, 0, 21, 5, 32, 8, 0, 21, 0, 255})
	// another wrap, and one more
	f.Add([]byte{5, 0, 21, 5, 0, 6, 0, 0, 0, 0, 1, 0, 30, 5, 0, 8, 0, 30, 0, 255, 1, 0, 30, 5, 0, 6, 0, 0,
		0, 0})
	cfg := channel.Config{Phases: []int{192}}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := newVictim(t, cfg)
		begin := uintptr(unsafe.Pointer(&v.memory[0]))
		var wrap uint64 // as far as the bodies tell
		var pos int     // the line after the last one
		took := func(n, line int) {
			if line < pos {
				wrap++
			}
			pos = line + (n+24+63)/64
		}
		for ; len(b) >= 5; b = b[5:] {
			line, n := int(b[1])%int(v.Lines), int(b[2])
			switch b[0] % 9 {
			case 0: // a message
				copy(v.memory[64*line:], v.AppendMessage(nil, wrap, header(uint32(b[4]), b[3]), letters(n)))
			case 1: // of the next wrap
				if n%2 == 0 {
					line = 0
				}
				copy(v.memory[64*line:], v.AppendMessage(nil, wrap+1, header(uint32(b[4]), b[3])|after(pos),
					letters(n)))
			case 2: // without its tail
				m := v.AppendMessage(nil, wrap, header(uint32(b[4]), b[3]), letters(n))
				copy(v.memory[64*line:], m[:len(m)-8])
			case 3: // a head of any length, and tails everywhere
				for i := range int(v.Lines) {
					copy(v.memory[64*i:], v.AppendMessage(nil, wrap, header(0, b[3]), nil))
				}
				m := v.AppendMessage(nil, wrap, 0, make([]byte, n<<8|int(b[4])))
				copy(v.memory[64*line:], m[:8])
			case 4: // any bytes
				copy(v.memory[(64*line+n)%len(v.memory):], b)
			case 5: // where the ring stands
				copy(v.memory[min(64*pos, len(v.memory)):], v.AppendMessage(nil, wrap,
					uint64(b[4])<<36|uint64(b[3])<<32, letters(n)))
			case 6:
				v.Release()
			case 7:
				_, err := v.Progress()
				require.NoError(t, err)
				require.NoError(t, v.Drive())
			case 8: // what Take takes is what Next gives
				kind, body, there, _ := v.Next()
				at := 0
				if len(body) > 0 {
					at = int(uintptr(unsafe.Pointer(&body[0]))-begin) / 64
				}
				body = bytes.Clone(body)
				first := wordcopy.Get(letters(wordcopy.Size), 0)
				if len(body) >= wordcopy.Size {
					first = wordcopy.Get(body, 0)
				}
				if b[3]%2 == 0 {
					v.Expect(n)
				}
				buf := make([]byte, b[4])
				if !there {
					kind = channel.Eager
				}
				k, ok := v.TryRecv(kind, first, buf)
				require.Equal(t, there && len(body) >= wordcopy.Size && len(body)-wordcopy.Size <= len(buf) &&
					!v.PeerRefusesPayload(), ok)
				if ok {
					require.Equal(t, body[wordcopy.Size:], buf[:k])
					took(len(body), at)
				}
			}
			_, body, ok, err := v.Next()
			if err != nil {
				require.ErrorIs(t, err, transport.ErrProtocol)
				require.False(t, ok)
			}
			if !ok {
				continue
			}
			require.LessOrEqual(t, len(body), v.MaxBody())
			require.Equal(t, len(body), cap(body))
			at := pos
			if len(body) > 0 {
				from := int(uintptr(unsafe.Pointer(&body[0])) - begin)
				require.LessOrEqual(t, from+len(body), len(v.memory)-8)
				at = from / 64
			}
			if n%2 == 0 {
				v.Release()
				took(len(body), at)
			}
		}
	})
}
