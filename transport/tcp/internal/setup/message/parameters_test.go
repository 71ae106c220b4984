package message

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// What is accepted as parameters is within its limits, and is written the same way; what is not says what was
// wrong.
func FuzzParameters(f *testing.F) {
	f.Add(testParameters.Append(nil))
	f.Add(Parameters{Reads: 1<<16 - 1, Lanes: 1<<16 - 1, Recv: MaxDepth, Checksum: true}.Append([]byte(nil)))
	f.Add(Parameters{Reads: 1, Lanes: 2, Recv: 3, Reconnects: true,
		Listens: []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:5"),
			netip.MustParseAddrPort("[::2]:5")}}.Append(nil))
	// of a later version
	f.Add(append([]byte{20}, append(testParameters.Append(nil)[1:], make([]byte, 40)...)...))
	f.Add([]byte{0xff, 0xff, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, rest, err := ParseParameters(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.ErrorContains(t, err, "parameters")
			return
		}
		size := len(b) - len(rest)
		require.LessOrEqual(t, size, MaxParameters)
		require.GreaterOrEqual(t, p.Lanes, 1)
		require.GreaterOrEqual(t, p.Recv, 1)
		require.LessOrEqual(t, p.Recv, MaxDepth)
		written := p.Append(nil)
		require.Equal(t, b[2:ParametersSize], written[2:ParametersSize])
		again, _, err := ParseParameters(written)
		require.NoError(t, err)
		require.Equal(t, p, again)
		a := p.Negotiate(testParameters)
		require.LessOrEqual(t, a.Lanes, MaxLanes)
		require.LessOrEqual(t, testParameters.Negotiate(p).Reads, MaxReads)
	})
}

// Fields that a later version adds are passed over, and what follows them is found; everything that cannot be
// is refused.
func TestParameters_C2_ReadAndRefused(t *testing.T) {
	after := []byte("private")
	later := testParameters.Append(nil)
	later[0] = ParametersSize + 3
	p, rest, err := ParseParameters(append(append(later, 1, 2, 3), after...))
	require.NoError(t, err)
	require.Equal(t, testParameters, p)
	require.Equal(t, after, rest)

	for text, change := range map[string]func(b []byte) []byte{
		"11 bytes of parameters": func(b []byte) []byte { return b[:ParametersSize-1] },
		"parameters of 11 bytes in a message of 12; 12 to 64 are possible": func(b []byte) []byte {
			b[0] = 11
			return b
		},
		"parameters of 13 bytes in a message of 12; 12 to 64 are possible": func(b []byte) []byte {
			b[0] = 13
			return b
		},
		"parameters of 65 bytes in a message of 112; 12 to 64 are possible": func(b []byte) []byte {
			b[0] = 65
			return append(b,
				make([]byte, 100)...)
		},
		"unknown checksum 2":                 func(b []byte) []byte { b[6] = 2; return b },
		"unknown checksum 0, 1":              func(b []byte) []byte { b[7] = 1; return b },
		"with no lane":                       func(b []byte) []byte { b[4] = 0; return b },
		"a receive queue of depth 0":         func(b []byte) []byte { b[8] = 0; return b },
		"a receive queue of depth 268435464": func(b []byte) []byte { b[11] = 0x10; return b },
	} {
		_, _, err := ParseParameters(change(testParameters.Append(nil)))
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
			x, y := Parameters{Reads: 3, Lanes: 4, Recv: 10, Checksum: a, Reconnects: true, Listens: here},
				Parameters{Reads: 1000, Lanes: 2, Recv: 20, Checksum: b, Reconnects: true, Listens: there}
			require.Equal(t, Agreement{Reads: 3, PeerRecv: 20, Lanes: 2, Checksum: a || b,
				Reconnects: true, Listens: there}, x.Negotiate(y))
			require.Equal(t, Agreement{Reads: 3, PeerRecv: 10, Lanes: 2, Checksum: a || b, Reconnects: true,
				Listens: here}, y.Negotiate(x))
		}
	}
}
