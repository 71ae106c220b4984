package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

func TestSpec_LanesOfParameters(t *testing.T) {
	p := testParameters
	p.Reconnects, p.Listens = true, []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:4660"),
		netip.MustParseAddrPort("[fe80::1]:4660")}
	block := p.Append(nil)
	require.Equal(t, le16(len(block)), block[:2])
	four, six := p.Listens[0].Addr().As16(), p.Listens[1].Addr().As16()
	fields(t, "Words of parameters", block[message.ParametersSize:],
		map[string][]byte{"port": {0x34, 0x12}, "addresses: how": {2}, "reserved": {0},
			"addresses, of": append(four[:], six[:]...)})
	again, rest, err := message.ParseParameters(block)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, p, again)
}

func TestSpec_LaneFrames(t *testing.T) {
	encoded := frame.AppendOverLane(nil, frame.Header{Op: frame.Write, A: 1, B: 2}, 0x0203, 0x11, 0x12, 0x13,
		[]byte("payload"), false)
	fields(t, "Header", encoded[:frame.HeaderSize], map[string][]byte{"length": le32(7), "opcode": {byte(frame.Write)},
		"flags": {0}, "lane": {3, 2},
		"a": le64(1), "b": le64(2)})
	fields(t, "Words of a frame", encoded[frame.HeaderSize:frame.LaneHeaderSize],
		map[string][]byte{"number": le64(0x11), "acknowledged": le64(0x12),
			"reference": le64(0x13)})
	require.Equal(t, "payload", string(encoded[frame.LaneHeaderSize:]))
	require.Equal(t, frame.Op(12), frame.Lost)

	told := frame.LostLanes{Version: 5, Heard: 6, Closed: []uint16{7, 8}}
	ranges := []frame.Range{{From: 102, To: 103}, {From: 105, To: 105}}
	lost := frame.AppendLost(nil, told, 100, ranges)
	after := append(append(le16(7), le16(8)...), append(append(le32(2), le32(3)...),
		append(le32(5), le32(5)...)...)...)
	fields(t, "Lost lanes", lost, map[string][]byte{"version": le32(5), "heard": le32(6),
		"lanes: how": le16(2), "ranges: how": le16(2),
		"lanes, then": after})
	back, got, err := frame.ParseLost(lost, 100)
	require.NoError(t, err)
	require.Equal(t, told, back)
	require.Equal(t, ranges, got)
}

// What is accepted as Lost can be nothing but what it says, and is within its limits.
func FuzzLost(f *testing.F) {
	f.Add(frame.AppendLost(nil, frame.LostLanes{Version: 1, Heard: 2, Closed: []uint16{3}}, 10,
		[]frame.Range{{From: 12, To: 20}, {From: 22, To: 22}}), uint64(10))
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, ack uint64) {
		if ack > 1<<62 {
			return
		}
		told, ranges, err := frame.ParseLost(b, ack)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		after := ack
		for _, r := range ranges {
			require.Greater(t, r.From, after)
			require.GreaterOrEqual(t, r.To, r.From)
			require.Less(t, r.To, ack+frame.Window)
			after = r.To
		}
		if len(told.Closed) <= frame.MaxLostLanes {
			require.Equal(t, b, frame.AppendLost(nil, told, ack, ranges))
		}
	})
}

// A header of a lane that is accepted is written the same way again; one of another lane is refused.
func FuzzLaneHeader(f *testing.F) {
	f.Add(frame.AppendOverLane(nil, frame.Header{Op: frame.Send, Flags: frame.Last, A: 1, B: 2}, 3, 4, 5, 6, nil, false))
	f.Add(frame.AppendOverLane(nil, frame.Header{Op: frame.Lost, Flags: frame.Last}, 3, 0, 5, 0, nil, false))
	f.Add(frame.AppendOverLane(nil, frame.Header{Op: frame.Send, Flags: frame.Last}, 3, 0, 5, 0, nil, false))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frame.LaneHeaderSize {
			return
		}
		b = b[:frame.LaneHeaderSize]
		number := uint16(b[6]) | uint16(b[7])<<8
		h, err := frame.ParseOverLane(b, number)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		_, err = frame.ParseOverLane(b, number+1)
		require.ErrorIs(t, err, transport.ErrProtocol)
		var again [frame.LaneHeaderSize]byte
		h.Put(again[:])
		frame.PutWords(again[:], number, h.Number, h.Ack, h.Ref)
		if h.Op == frame.Lost { // of which a and b are not looked at
			copy(again[8:24], b[8:24])
		}
		require.Equal(t, b, again[:])
	})
}
