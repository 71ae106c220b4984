package tcp

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// testParameters are those of a peer made of bytes.
var testParameters = message.Parameters{Reads: message.MaxReads, Lanes: 1, Recv: 8}

func testParties() message.Parties {
	p := message.Parties{Job: handshake.JobHash("job"), Initiator: 3, Responder: 5}
	for i := range p.Nonces[0] {
		p.Nonces[0][i], p.Nonces[1][i] = byte(i), byte(0x80+i)
	}
	return p
}

var testSecret = [32]byte{1, 2, 3, 4, 5, 6, 7, 8}

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
			require.Equal(t, []any{8, message.MaxReads, 1, c.want}, []any{got.PeerRecv, got.PeerReads, got.Lanes,
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
