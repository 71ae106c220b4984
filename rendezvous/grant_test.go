package rendezvous_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// TestCTS_EveryFieldComesBack, and what no grant can be is refused.
func TestCTS_EveryFieldComesBack(t *testing.T) {
	for _, last := range []bool{false, true} {
		good := rendezvous.CTS{
			ID: 0x2122232425262728, Grant: 0x15161718, Key: 0xb132333435363738,
			Offset: 0x4142434445, Length: 1 << 46, Last: last,
		}
		b := good.Append([]byte("before"))[6:]
		require.Len(t, b, 40)
		got, err := rendezvous.ParseCTS(b)
		require.NoError(t, err)
		require.Equal(t, good, got)
		for i := range b {
			_, err := rendezvous.ParseCTS(b[:i])
			require.ErrorIs(t, err, transport.ErrProtocol)
		}
		_, err = rendezvous.ParseCTS(append(b, 0))
		require.ErrorIs(t, err, transport.ErrProtocol)
		for _, change := range []func(*rendezvous.CTS){
			func(c *rendezvous.CTS) { c.ID |= 1 << 63 },
			func(c *rendezvous.CTS) { c.Grant |= 1 << 63 },
			func(c *rendezvous.CTS) { c.Offset = 1<<46 + 1 },
			func(c *rendezvous.CTS) { c.Length = 1<<46 + 1 },
			func(c *rendezvous.CTS) { c.Length = 0 },
		} {
			bad := good
			change(&bad)
			_, err := rendezvous.ParseCTS(bad.Append(nil))
			require.ErrorIs(t, err, transport.ErrProtocol, "%+v", bad)
		}
	}
}

// FuzzCTS: what is accepted is what Append writes, within bounds. A sender of 1000 bytes takes it only as
// far as it grants room for them, and then writes as many bytes.
func FuzzCTS(f *testing.F) {
	f.Add([]byte{})
	f.Add(rendezvous.CTS{Length: 1000, Last: true}.Append(nil))
	f.Add(rendezvous.CTS{Length: 1000}.Append(nil))
	f.Add(rendezvous.CTS{Length: 1001, Last: true}.Append(nil))
	f.Add(rendezvous.CTS{Grant: 7, Key: 8, Offset: 1 << 46, Length: 999}.Append(nil))
	f.Add(rendezvous.CTS{ID: 1, Grant: math.MaxInt64, Key: 8, Offset: math.MaxUint64,
		Length: 1 << 46}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		cts, err := rendezvous.ParseCTS(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.Equal(t, b, cts.Append(nil))
		require.LessOrEqual(t, max(cts.Offset, cts.Length), uint64(1<<46))
		l := open(t, rendezvous.ReceiverConfig{Piece: 300})
		ok, err := l.a.announce(pattern(0, 0, 1000), false)
		require.NoError(t, err)
		require.True(t, ok)
		err = l.a.snd.OnCTS(l.a.ch, cts)
		if cts.ID != 0 || cts.Length > 1000 || cts.Length == 1000 && !cts.Last {
			require.ErrorIs(t, err, transport.ErrProtocol)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, l.a.snd.Fail(l.a.ch, func(uint64) {}))
		l.close(t)
	})
}

// granting makes a link of which B grants, with one message of 90 bytes announced by A and granted in buffers
// of 30. It returns the CTSs, that A has not seen.
func granting(t *testing.T) (l *link, sent []rendezvous.CTS) {
	l = open(t, rendezvous.ReceiverConfig{Grant: true})
	l.b.cut = func(b []byte) [][]byte { return [][]byte{b[:30], nil, b[30:60], b[60:]} }
	ok, err := l.a.announce(pattern(0, 0, 90), false)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, l.Drive())
	require.NoError(t, l.b.receive(1))
	require.NoError(t, l.Drive())
	for {
		kind, body, ok, err := l.a.ch.Next()
		require.NoError(t, err)
		if !ok {
			require.Len(t, sent, 3)
			return l, sent
		}
		require.Equal(t, channel.CTS, kind)
		cts, err := rendezvous.ParseCTS(body)
		require.NoError(t, err)
		sent = append(sent, cts)
		l.a.ch.Release()
	}
}

// TestCTS_OfNothing is the peer's error, and leaves what is announced as it is: a CTS for no
// announcement, for one of another channel or an earlier generation, for more than its bytes, after the last
// one, or the last bytes and not the last one; more CTSs than may be open; FIN for what has been granted.
func TestCTS_OfNothing(t *testing.T) {
	l, sent := granting(t)
	other := open(t, rendezvous.ReceiverConfig{})
	refused := func(c *channel.Channel, change func(*rendezvous.CTS)) {
		t.Helper()
		cts := sent[0]
		change(&cts)
		require.ErrorIs(t, l.a.snd.OnCTS(c, cts), transport.ErrProtocol)
	}
	same := func(*rendezvous.CTS) {}
	refused(other.a.ch, same)
	for bit := range 64 {
		refused(l.a.ch, func(c *rendezvous.CTS) { c.ID ^= 1 << bit })
	}
	for _, n := range []uint64{90, 91, 1 << 46} {
		refused(l.a.ch, func(c *rendezvous.CTS) { c.Length = n })
	}
	refused(l.a.ch, func(c *rendezvous.CTS) { c.Length, c.Last = 91, true })
	for i, cts := range sent {
		require.Equal(t, i == 2, cts.Last)
		require.NoError(t, l.a.snd.OnCTS(l.a.ch, cts))
		_, err := l.a.snd.OnFIN(l.a.ch, uint32(cts.ID))
		require.ErrorIs(t, err, transport.ErrProtocol)
		refused(l.a.ch, func(c *rendezvous.CTS) { c.Length = 90 })
	}
	refused(l.a.ch, func(c *rendezvous.CTS) { c.Length, c.Last = 1, true })
	l.settle(t, false)
	refused(l.a.ch, same) // it is over

	l.a.snd = rendezvous.NewSender(l.A.PD(), rendezvous.SenderConfig{Depth: 1, Piece: 1})
	_, ok, err := l.a.snd.TrySendRTS(l.a.ch, eager.Envelope{}, pattern(0, 1, 90), 0, false)
	require.NoError(t, err)
	require.True(t, ok)
	one := rendezvous.CTS{ID: 0, Key: 1, Length: 1}
	for range rendezvous.MaxOpenGrants + 1 { // one of them is being written
		require.NoError(t, l.a.snd.OnCTS(l.a.ch, one))
	}
	require.ErrorIs(t, l.a.snd.OnCTS(l.a.ch, one), transport.ErrProtocol)
	l.A.Abort(transport.ErrProtocol)
	require.NoError(t, l.a.snd.Fail(l.a.ch, func(uint64) {}))
	l.close(t)
	other.close(t)
}

// TestGrantEnd_OfNothing is the peer's error: a grant that was never made, of another channel, of an earlier
// generation, ended once too often, or whose CTS has not been sent; and any end where nothing is granted.
func TestGrantEnd_OfNothing(t *testing.T) {
	l, sent := granting(t)
	other := open(t, rendezvous.ReceiverConfig{Grant: true})
	refused := func(f *rendezvous.Receiver, c *channel.Channel, imm uint32) {
		t.Helper()
		_, done, err := f.OnGrantEnd(c, imm)
		require.ErrorIs(t, err, transport.ErrProtocol)
		require.False(t, done)
	}
	var imms []uint32
	for _, cts := range sent {
		imms = append(imms, uint32(cts.Grant)|1<<31)
	}
	imm := imms[0]
	require.True(t, rendezvous.IsGrantEnd(imm))
	require.False(t, rendezvous.IsGrantEnd(uint32(sent[0].ID)))
	refused(l.b.rcv, other.b.ch, imm)
	refused(other.b.rcv, other.b.ch, imm)
	for bit := range 31 {
		if !slices.Contains(imms, imm^1<<bit) {
			refused(l.b.rcv, l.b.ch, imm^1<<bit)
		}
	}
	for i, imm := range imms {
		_, done, err := l.b.rcv.OnGrantEnd(l.b.ch, imm)
		require.NoError(t, err)
		require.Equal(t, i == 2, done)
		refused(l.b.rcv, l.b.ch, imm)
	}
	require.Equal(t, 2, l.B.Regions())
	require.NoError(t, l.a.snd.Fail(l.a.ch, func(uint64) {}))
	l.close(t)
	other.close(t)

	narrow := open(t, rendezvous.ReceiverConfig{Grant: true, Depth: 1})
	bufs := [][]byte{make([]byte, 5), make([]byte, 5)}
	_, err := narrow.b.rcv.Start(narrow.b.ch, rendezvous.Source{Length: 10}, bufs, 1)
	require.NoError(t, err)
	narrow.B.Depth = 0 // no room for the second CTS
	_, done, err := narrow.b.rcv.OnGrantEnd(narrow.b.ch, 1<<31)
	require.NoError(t, err)
	require.False(t, done)
	require.True(t, narrow.b.rcv.SendQueueFull(narrow.b.ch))
	refused(narrow.b.rcv, narrow.b.ch, 1<<31)
	require.NoError(t, narrow.b.rcv.Fail(narrow.b.ch, func(uint64) {}))
	narrow.close(t)

	reading := open(t, rendezvous.ReceiverConfig{})
	_, err = reading.b.rcv.Start(reading.b.ch, rendezvous.Source{Key: 1, Length: 10}, bufs, 1)
	require.NoError(t, err)
	refused(reading.b.rcv, reading.b.ch, 1<<31)
	reading.B.Abort(transport.ErrProtocol)
	require.NoError(t, reading.b.rcv.Fail(reading.b.ch, func(uint64) {}))
	reading.close(t)
}

// TestGrant_WritesWhereTheCTSSays though weft's own grants begin at 0.
func TestGrant_WritesWhereTheCTSSays(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Piece: 7})
	src, dst := pattern(0, 0, 50), make([]byte, 100)
	ok, err := l.a.announce(src, false)
	require.NoError(t, err)
	require.True(t, ok)
	mr, err := l.B.PD().Register(dst, transport.RemoteWrite)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, l.B.PostRecv(&transport.RecvWR{}))
	}
	require.NoError(t, l.a.snd.OnCTS(l.a.ch, rendezvous.CTS{Grant: 5, Key: mr.Key(), Offset: 60, Length: 30}))
	require.NoError(t, l.a.snd.OnCTS(l.a.ch, rendezvous.CTS{Grant: 6, Key: mr.Key(), Offset: 10, Length: 15,
		Last: true}))
	for l.a.finished[0] == 0 {
		require.NoError(t, l.Drive())
		require.NoError(t, l.a.complete(3))
	}
	want := make([]byte, 100)
	copy(want[60:], src[:30])
	copy(want[10:], src[30:45])
	require.Equal(t, want, dst)
	var wcs [3]transport.WC
	require.Equal(t, 2, l.B.Poll(wcs[:]))
	require.Equal(t, [2]uint32{1<<31 | 5, 1<<31 | 6}, [2]uint32{wcs[0].Imm, wcs[1].Imm})
	require.NoError(t, mr.Deregister())
	l.close(t)
}

// TestGrant_KeepsWithinWhatMayBeOpen: a message into far more buffers than may be granted at once.
func TestGrant_KeepsWithinWhatMayBeOpen(t *testing.T) {
	l := openPhases(t, []int{2000}, rendezvous.ReceiverConfig{Grant: true, Depth: 1000})
	const parts = 5 * rendezvous.MaxOpenGrants
	open, maxOpen := 0, 0
	l.Carried = func(_ *channeltest.End, wr *transport.SendWR, _ []byte) {
		switch {
		case wr.Op == transport.OpWriteImm:
			open--
		case wr.Op == transport.OpWrite && len(wr.Local) == 1 && nameOf(wr) == "CTS":
			open++
			maxOpen = max(maxOpen, open)
		}
	}
	l.b.cut = func(b []byte) (bufs [][]byte) {
		for at := range parts {
			bufs = append(bufs, b[at*3:at*3+3])
		}
		return bufs
	}
	ok, err := l.a.announce(pattern(0, 0, parts*3), false)
	require.NoError(t, err)
	require.True(t, ok)
	l.settle(t, false)
	require.Equal(t, parts, l.a.granted)
	require.Equal(t, rendezvous.MaxOpenGrants, maxOpen)
	require.LessOrEqual(t, l.b.recvs, parts+1)
	l.close(t)
}

// TestGrant_NoAllocationInSteadyState counts both ends: announcement, CTSs, WRITEs, their ends.
func TestGrant_NoAllocationInSteadyState(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Piece: 1000, Depth: 2, Grant: true})
	src, dst := pattern(0, 0, 3500), make([]byte, 3500)
	var wcs [8]transport.WC
	into := [][]byte{dst[:2200], dst[2200:]}
	next := func(c *channel.Channel, want channel.Kind, take func(body []byte)) {
		for {
			kind, body, ok, err := c.Next()
			must(t, err)
			if !ok {
				break
			}
			if kind != want {
				t.Fatal(kind)
			}
			take(body)
			c.Release()
		}
		_, err := c.Progress()
		must(t, err)
	}
	started := func(body []byte) {
		rts, err := rendezvous.ParseRTS(body)
		must(t, err)
		_, err = l.b.rcv.Start(l.b.ch, rts.Source, into, 6)
		must(t, err)
	}
	granted := func(body []byte) {
		cts, err := rendezvous.ParseCTS(body)
		must(t, err)
		must(t, l.a.snd.OnCTS(l.a.ch, cts))
	}
	round := func() {
		_, ok, err := l.a.snd.TrySendRTS(l.a.ch, eager.Envelope{Context: 1, Tag: 2}, src, 5, false)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		for left := 2; left > 0; {
			must(t, l.Drive())
			next(l.b.ch, channel.RTS, started)
			next(l.a.ch, channel.CTS, granted)
			for _, wc := range wcs[:l.A.Poll(wcs[:])] {
				token, done, err := l.a.snd.OnCompletion(&wc)
				must(t, err)
				if done && token == 5 {
					left--
				}
			}
			for _, wc := range wcs[:l.B.Poll(wcs[:])] {
				token, done, err := l.b.rcv.OnGrantEnd(l.b.ch, wc.Imm)
				must(t, err)
				if done && token == 6 {
					left--
				}
			}
		}
	}
	require.Zero(t, testing.AllocsPerRun(300, round))
	require.True(t, bytes.Equal(src, dst))
	l.close(t)
}

// FuzzGrantEnd answers open grants with any immediates: each that names one ends it, once; any other is the
// peer's error.
func FuzzGrantEnd(f *testing.F) {
	f.Add([]byte{0, 0, 0, 128, 0, 0, 0, 128})
	f.Add([]byte{0, 0, 0, 128, 192, 0, 0, 128, 1, 0, 0, 128})
	f.Add([]byte{255, 255, 0, 128})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := open(t, rendezvous.ReceiverConfig{Grant: true})
		imms := map[uint32]uint64{} // token by immediate
		start := func(token uint64) {
			done, err := l.b.rcv.Start(l.b.ch, rendezvous.Source{Length: 8}, [][]byte{make([]byte, 8)}, token)
			require.NoError(t, err)
			require.False(t, done)
			cts, err := rendezvous.ParseCTS(l.arrive(t, l.a.ch))
			require.NoError(t, err)
			l.credit(t, l.a.ch, l.b.ch)
			imms[uint32(cts.Grant)|1<<31] = token
		}
		for i := range uint64(3) {
			start(i)
		}
		for next := uint64(3); len(b) >= 4; b = b[4:] {
			imm := binary.LittleEndian.Uint32(b) | 1<<31
			token, done, err := l.b.rcv.OnGrantEnd(l.b.ch, imm)
			want, is := imms[imm]
			require.Equal(t, is, done)
			if !is {
				require.ErrorIs(t, err, transport.ErrProtocol)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want, token)
			delete(imms, imm)
			start(next)
			next++
		}
		given := 0
		require.NoError(t, l.b.rcv.Fail(l.b.ch, func(uint64) { given++ }))
		require.Equal(t, len(imms), given)
		l.close(t)
	})
}

// TestGrant_OfMessagesThatArriveTogether: their CTSs, and the Writes of several CTSs, are posted together, and
// flushed once.
func TestGrant_OfMessagesThatArriveTogether(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Grant: true})
	var posted []string
	l.Carried = func(_ *channeltest.End, wr *transport.SendWR, _ []byte) {
		if name := nameOf(wr); name == "CTS" || wr.Op == transport.OpWriteImm {
			require.NotZero(t, wr.Flags&transport.FlagMore)
			posted = append(posted, name)
		}
	}
	const messages = 3
	for i := range messages {
		ok, err := l.a.announce(pattern(0, i, 30), false)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.NoError(t, l.Drive())
	l.b.rcv.Gather(l.b.ch)
	require.NoError(t, l.b.receive(messages))
	require.NoError(t, l.Drive())
	require.Empty(t, posted)
	l.b.rcv.Gather(nil)
	require.NoError(t, l.b.rcv.Progress(l.b.ch))
	require.NoError(t, l.Drive())
	require.Len(t, posted, messages)
	l.a.snd.Gather(l.a.ch)
	require.NoError(t, l.a.receive(messages))
	require.NoError(t, l.Drive())
	require.Equal(t, messages, l.a.granted)
	require.Len(t, posted, messages, "no Write yet")
	l.a.snd.Gather(nil)
	l.settle(t, false)
	require.Len(t, posted, 2*messages)
	l.close(t)
}

// TestGrant_AtMost2MiBOrTwoMessages are granted at once.
func TestGrant_AtMost2MiBOrTwoMessages(t *testing.T) {
	for n, want := range map[int]int{100 << 10: 21, 1 << 20: 2, 3 << 20: 2} {
		l := openPhases(t, []int{2000}, rendezvous.ReceiverConfig{Grant: true})
		open, maxOpen := 0, 0
		l.Carried = func(_ *channeltest.End, wr *transport.SendWR, _ []byte) {
			switch {
			case wr.Op == transport.OpWriteImm:
				open--
			case wr.Op == transport.OpWrite && len(wr.Local) == 1 && nameOf(wr) == "CTS":
				open++
				maxOpen = max(maxOpen, open)
			}
		}
		for i := range 25 {
			ok, err := l.a.announce(pattern(0, i, n), false)
			require.NoError(t, err)
			require.True(t, ok)
		}
		l.settle(t, false)
		require.Equal(t, want, maxOpen, "of %d bytes", n)
		l.close(t)
	}
}
