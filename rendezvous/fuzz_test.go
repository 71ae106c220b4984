package rendezvous_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// TestRTS_EveryFieldComesBack, and what no announcement can be is refused.
func TestRTS_EveryFieldComesBack(t *testing.T) {
	good := rendezvous.RTS{Context: 0x01020304, Tag: 0x11121314, Source: rendezvous.Source{
		ID: 0x2122232425262728, Key: 0x3132333435363738, Offset: 0x4142434445, Length: 1 << 46,
	}}
	b := good.Append([]byte("before"))[6:]
	require.Len(t, b, 40)
	got, err := rendezvous.ParseRTS(b)
	require.NoError(t, err)
	require.Equal(t, good, got)
	for i := range b {
		_, err := rendezvous.ParseRTS(b[:i])
		require.ErrorIs(t, err, transport.ErrProtocol)
	}
	_, err = rendezvous.ParseRTS(append(b, 0))
	require.ErrorIs(t, err, transport.ErrProtocol)
	for _, change := range []func(*rendezvous.RTS){
		func(r *rendezvous.RTS) { r.Tag = -1 },
		func(r *rendezvous.RTS) { r.Tag = math.MinInt32 },
		func(r *rendezvous.RTS) { r.ID |= 1 << 63 },
		func(r *rendezvous.RTS) { r.Offset = 1<<46 + 1 },
		func(r *rendezvous.RTS) { r.Length = 1<<46 + 1 },
		func(r *rendezvous.RTS) { r.Length = math.MaxUint64 },
	} {
		bad := good
		change(&bad)
		_, err := rendezvous.ParseRTS(bad.Append(nil))
		require.ErrorIs(t, err, transport.ErrProtocol, "%+v", bad)
	}
}

// FuzzRTS: what is accepted is what Append writes, with a length that an int can hold and an end that does
// not go over.
func FuzzRTS(f *testing.F) {
	f.Add([]byte{})
	f.Add(rendezvous.RTS{Context: 1, Tag: 2, Source: rendezvous.Source{ID: 3, Key: 4, Offset: 5,
		Length: 6}}.Append(nil))
	f.Add(rendezvous.RTS{Tag: -1}.Append(nil))
	for _, s := range oddSources {
		f.Add(rendezvous.RTS{Source: s}.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := rendezvous.ParseRTS(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.Equal(t, b, r.Append(nil))
		require.GreaterOrEqual(t, r.Tag, int32(0))
		require.LessOrEqual(t, r.Length, uint64(1<<46))
		require.GreaterOrEqual(t, r.Offset+r.Length, r.Offset)
	})
}

// oddSources are on the edge of what can be, and beyond it.
var oddSources = []rendezvous.Source{
	{Offset: math.MaxUint64, Length: 2}, {Length: 1 << 46}, {Length: 1<<46 + 1}, {Offset: 1 << 46},
	{Offset: 1<<46 + 1},
}

// FuzzSource: what is accepted is what Append writes, with bounds that an int can hold.
func FuzzSource(f *testing.F) {
	f.Add([]byte{})
	f.Add(rendezvous.Source{ID: math.MaxInt64, Key: 4, Offset: 5, Length: 6}.Append(nil))
	f.Add(rendezvous.Source{ID: math.MaxInt64 + 1, Length: 6}.Append(nil))
	f.Add(append(rendezvous.Source{}.Append(nil), 0))
	for _, s := range oddSources {
		f.Add(s.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := rendezvous.ParseSource(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.True(t, len(b) != 32 || b[7]>>7 == 1 || binary.LittleEndian.Uint64(b[16:]) > 1<<46 ||
				binary.LittleEndian.Uint64(b[24:]) > 1<<46)
			return
		}
		require.Equal(t, b, s.Append(nil))
		require.LessOrEqual(t, max(s.Length, s.Offset), uint64(1<<46))
	})
}

// FuzzFIN answers open announcements with any immediates: one that names an open announcement gives its
// token, once; any other is the peer's error.
func FuzzFIN(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0})
	f.Add([]byte{255, 255, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := open(t, rendezvous.ReceiverConfig{})
		open := map[uint32]uint64{} // token by immediate
		announce := func(token uint64, n int) {
			_, ok, err := l.a.snd.TrySendRTS(l.a.ch, eager.Envelope{}, pattern(0, 0, n), token, false)
			require.NoError(t, err)
			require.True(t, ok)
			rts, err := rendezvous.ParseRTS(l.arrive(t, l.b.ch))
			require.NoError(t, err)
			l.credit(t, l.b.ch, l.a.ch)
			open[uint32(rts.ID)] = token
		}
		for i := range uint64(4) {
			announce(i, int(i))
		}
		for next := uint64(4); len(b) >= 4; b = b[4:] {
			imm := binary.LittleEndian.Uint32(b)
			token, err := l.a.snd.OnFIN(l.a.ch, imm)
			want, is := open[imm]
			if !is {
				require.ErrorIs(t, err, transport.ErrProtocol)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want, token)
			delete(open, imm)
			announce(next, 1) // in the place that is free now
			next++
		}
		require.Equal(t, len(open), l.a.snd.Outstanding(l.a.ch))
		require.NoError(t, l.a.snd.Fail(l.a.ch, func(uint64) {}))
		l.close(t)
	})
}

// TestClaims_MessageComesBack, and one of another length is refused.
func TestClaims_MessageComesBack(t *testing.T) {
	b := rendezvous.Claims{Key: 0x0102030405060708, FINs: 0x1112131415161718}.Append([]byte("before"))[6:]
	got, err := rendezvous.ParseClaims(b)
	require.NoError(t, err)
	require.EqualValues(t, 0x0102030405060708, got.Key)
	for _, b := range [][]byte{nil, b[:7], append(b, 0)} {
		_, err := rendezvous.ParseClaims(b)
		require.ErrorIs(t, err, transport.ErrProtocol)
	}
}
