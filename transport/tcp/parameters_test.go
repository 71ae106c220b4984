package tcp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// What is accepted as parameters is within its limits, and is written the same way; what is not says what was
// wrong.
func FuzzParameters(f *testing.F) {
	f.Add(testParameters.append(nil))
	f.Add(parameters{reads: 1<<16 - 1, lanes: 1<<16 - 1, recv: maxDepth, checksum: true}.append([]byte(nil)))
	f.Add(parameters{reads: 1, lanes: 2, recv: 3, keeps: true,
		listens: []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:5"),
			netip.MustParseAddrPort("[::2]:5")}}.append(nil))
	// of a later version
	f.Add(append([]byte{20}, append(testParameters.append(nil)[1:], make([]byte, 40)...)...))
	f.Add([]byte{0xff, 0xff, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, rest, err := parseParameters(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.ErrorContains(t, err, "parameters")
			return
		}
		size := len(b) - len(rest)
		require.LessOrEqual(t, size, maxParameters)
		require.GreaterOrEqual(t, p.lanes, 1)
		require.GreaterOrEqual(t, p.recv, 1)
		require.LessOrEqual(t, p.recv, maxDepth)
		written := p.append(nil)
		require.Equal(t, b[2:parametersSize], written[2:parametersSize])
		again, _, err := parseParameters(written)
		require.NoError(t, err)
		require.Equal(t, p, again)
		a := p.negotiate(testParameters)
		require.LessOrEqual(t, a.lanes, maxLanes)
		require.LessOrEqual(t, testParameters.negotiate(p).reads, maxReads)
	})
}

// Fields that a later version adds are passed over, and what follows them is found; everything that cannot be
// is refused.
func TestParameters_C2_ReadAndRefused(t *testing.T) {
	after := []byte("private")
	later := testParameters.append(nil)
	later[0] = parametersSize + 3
	p, rest, err := parseParameters(append(append(later, 1, 2, 3), after...))
	require.NoError(t, err)
	require.Equal(t, testParameters, p)
	require.Equal(t, after, rest)

	for text, change := range map[string]func(b []byte) []byte{
		"11 bytes of parameters": func(b []byte) []byte { return b[:parametersSize-1] },
		"parameters of 11 bytes": func(b []byte) []byte { b[0] = 11; return b },
		"parameters of 13 bytes": func(b []byte) []byte { b[0] = 13; return b },
		"parameters of 65 bytes": func(b []byte) []byte {
			b[0] = 65
			return append(b,
				make([]byte, 100)...)
		},
		"ask for checksum 2":                 func(b []byte) []byte { b[6] = 2; return b },
		"ask for checksum 0, 1":              func(b []byte) []byte { b[7] = 1; return b },
		"of no lane":                         func(b []byte) []byte { b[4] = 0; return b },
		"a receive queue of depth 0":         func(b []byte) []byte { b[8] = 0; return b },
		"a receive queue of depth 268435464": func(b []byte) []byte { b[11] = 0x10; return b },
	} {
		_, _, err := parseParameters(change(testParameters.append(nil)))
		require.ErrorIs(t, err, transport.ErrProtocol, text)
		require.ErrorContains(t, err, text)
	}
}

// Both ends conclude the same, whoever began.
func TestParameters_C2_Negotiated(t *testing.T) {
	for _, a := range []bool{false, true} {
		for _, b := range []bool{false, true} {
			here, there := []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:5")},
				[]netip.AddrPort{netip.MustParseAddrPort("[::2]:6")}
			x, y := parameters{reads: 3, lanes: 4, recv: 10, checksum: a, keeps: true, listens: here},
				parameters{reads: 1000, lanes: 2, recv: 20, checksum: b, keeps: true, listens: there}
			require.Equal(t, agreement{reads: 3, peerRecv: 20, lanes: 2, checksum: a || b,
				keeps: true, listens: there}, x.negotiate(y))
			require.Equal(t, agreement{reads: 3, peerRecv: 10, lanes: 2, checksum: a || b, keeps: true,
				listens: here}, y.negotiate(x))
		}
	}
}

// A queue pair tells what was agreed on: the same on both ends, and a checksum if either device wishes it.
func TestParameters_C2_QueryTellsWhatWasAgreedOn(t *testing.T) {
	for _, c := range []struct {
		mine, theirs Checksum
		want         bool
	}{
		{ChecksumAuto, ChecksumAuto, false}, // one machine
		{ChecksumNever, ChecksumAuto, false},
		{ChecksumAlways, ChecksumNever, true},
		{ChecksumNever, ChecksumAlways, true},
		{ChecksumAlways, ChecksumAlways, true},
	} {
		a, b := newHostOfRank(t, Options{Checksum: c.mine}, 0),
			newHostOfRank(t, Options{Checksum: c.theirs}, 1)
		require.NoError(t, a.ep.Connect(t.Context(), 1, b.ep.Addr()))
		for _, h := range []*host{a, b} {
			m := h.nextMade()
			got := m.qp.Query()
			require.Equal(t, []any{8, maxReads, 1, c.want}, []any{got.PeerRecv, got.PeerReads, got.Lanes,
				got.Checksum}, "%+v", c)
			m.qp.Release()
		}
	}
}

func TestChecksum_AutoIsBetweenMachines(t *testing.T) {
	at := func(host string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(host), Port: 1} }
	require.False(t, wished(ChecksumAuto, at("127.0.0.1"), at("127.0.0.1")))
	require.False(t, wished(ChecksumAuto, at("10.0.0.1"), at("10.0.0.1")))
	require.True(t, wished(ChecksumAuto, at("10.0.0.1"), at("10.0.0.2")))
	require.True(t, wished(ChecksumAuto, at("fe80::1"), at("fe80::2")))
	require.True(t, wished(ChecksumAlways, at("127.0.0.1"), at("127.0.0.1")))
	require.False(t, wished(ChecksumNever, at("10.0.0.1"), at("10.0.0.2")))
}
