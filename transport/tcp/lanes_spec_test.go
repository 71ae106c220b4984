package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/lane"
)

func TestSpec_LanesOfParameters(t *testing.T) {
	p := testParameters
	p.keeps, p.listens = true, []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:4660"), netip.MustParseAddrPort("[fe80::1]:4660")}
	block := p.append(nil)
	require.Equal(t, le16(len(block)), block[:2])
	four, six := p.listens[0].Addr().As16(), p.listens[1].Addr().As16()
	fields(t, "Words of parameters", block[parametersSize:], map[string][]byte{"port": {0x34, 0x12}, "addresses: how": {2}, "reserved": {0},
		"addresses, of": append(four[:], six[:]...)})
	again, rest, err := parseParameters(block)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, p, again)
}

func TestSpec_LaneFrames(t *testing.T) {
	frame := appendLaneFrame(nil, header{op: opWrite, a: 1, b: 2}, 0x0203, 0x11, 0x12, 0x13, []byte("payload"), false)
	fields(t, "Header", frame[:headerSize], map[string][]byte{"length": le32(7), "opcode": {byte(opWrite)}, "flags": {0}, "lane": {3, 2},
		"a": le64(1), "b": le64(2)})
	fields(t, "Words of a frame", frame[headerSize:laneHeaderSize], map[string][]byte{"number": le64(0x11), "acknowledged": le64(0x12),
		"reference": le64(0x13)})
	require.Equal(t, "payload", string(frame[laneHeaderSize:]))
	require.Equal(t, op(14), opLost)

	told := lane.Telling{Version: 5, Heard: 6, Closed: []uint16{7, 8}}
	ranges := []lane.Range{{From: 102, To: 103}, {From: 105, To: 105}}
	lost := appendLost(nil, told, 100, ranges)
	behind := append(append(le16(7), le16(8)...), append(append(le32(2), le32(3)...), append(le32(5), le32(5)...)...)...)
	fields(t, "Lost lanes", lost, map[string][]byte{"version": le32(5), "heard": le32(6), "lanes: how": le16(2), "ranges: how": le16(2),
		"lanes, then": behind})
	back, got, err := parseLost(lost, 100)
	require.NoError(t, err)
	require.Equal(t, told, back)
	require.Equal(t, ranges, got)
}

// What is accepted as Lost can be nothing but what it says, and is within its limits.
func FuzzLost(f *testing.F) {
	f.Add(appendLost(nil, lane.Telling{Version: 1, Heard: 2, Closed: []uint16{3}}, 10, []lane.Range{{From: 12, To: 20}, {From: 22, To: 22}}), uint64(10))
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, ack uint64) {
		if ack > 1<<62 {
			return
		}
		told, ranges, err := parseLost(b, ack)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		behind := ack
		for _, r := range ranges {
			require.Greater(t, r.From, behind)
			require.GreaterOrEqual(t, r.To, r.From)
			require.Less(t, r.To, ack+lane.Window)
			behind = r.To
		}
		if len(told.Closed) <= lanesLostMost {
			require.Equal(t, b, appendLost(nil, told, ack, ranges))
		}
	})
}

// A header of a lane that is accepted is written the same way again; one of another lane is refused.
func FuzzLaneHeader(f *testing.F) {
	f.Add(appendLaneFrame(nil, header{op: opSend, flags: flagLast, a: 1, b: 2}, 3, 4, 5, 6, nil, false))
	f.Add(appendLaneFrame(nil, header{op: opLost, flags: flagLast}, 3, 0, 5, 0, nil, false))
	f.Add(appendLaneFrame(nil, header{op: opSend, flags: flagLast}, 3, 0, 5, 0, nil, false))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < laneHeaderSize {
			return
		}
		b = b[:laneHeaderSize]
		number := uint16(b[6]) | uint16(b[7])<<8
		h, err := parseLaneHeader(b, number)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		_, err = parseLaneHeader(b, number+1)
		require.ErrorIs(t, err, transport.ErrProtocol)
		var again [laneHeaderSize]byte
		h.put(again[:])
		putWords(again[:], number, h.number, h.ack, h.ref)
		if h.op == opLost { // of which a and b are not looked at
			copy(again[8:24], b[8:24])
		}
		require.Equal(t, b, again[:])
	})
}
