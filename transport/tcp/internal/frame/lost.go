package frame

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Window is the send window: how many numbers a direction may be ahead of its acknowledgement. It bounds
// every list of frames, and the holes: the sender waits, and nothing is dropped (H4).
const Window = 2048

// MaxHoles is the maximum number of holes: each has at least one missing number and one that has arrived.
const MaxHoles = Window / 2

// LostLanes is one end's report of the lanes that it has closed.
type LostLanes struct {
	Version, Heard uint32   // of this report, and of the peer's newest that was received
	Closed         []uint16 // lanes whose frames it no longer places
}

// Range is a stretch of numbers that have arrived.
type Range struct{ From, To uint64 }

const (
	lostHead     = 12 // versions (4 + 4), lanes (2), ranges (2)
	lostLane     = 2
	lostRange    = 8   // first and last number after the acknowledged ones, 4 bytes each
	MaxLostLanes = 256 // in one report
	MaxLost      = lostHead + lostLane*MaxLostLanes + lostRange*MaxHoles
)

// AppendLost appends the payload of Lost. The ranges are beyond ack, which is also in the frame's header.
func AppendLost(b []byte, t LostLanes, ack uint64, ranges []Range) []byte {
	closed := t.Closed[:min(len(t.Closed), MaxLostLanes)]
	b = binary.LittleEndian.AppendUint32(b, t.Version)
	b = binary.LittleEndian.AppendUint32(b, t.Heard)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(closed)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(ranges)))
	for _, number := range closed {
		b = binary.LittleEndian.AppendUint16(b, number)
	}
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.From-ack))
		b = binary.LittleEndian.AppendUint32(b, uint32(r.To-ack))
	}
	return b
}

// ParseLost parses the payload of Lost.
func ParseLost(b []byte, ack uint64) (t LostLanes, ranges []Range, err error) {
	bad := fmt.Errorf("%w: Lost of %d bytes that do not fit together", transport.ErrProtocol, len(b))
	if len(b) < lostHead {
		return t, nil, bad
	}
	t.Version, t.Heard = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	closed, count := int(binary.LittleEndian.Uint16(b[8:])), int(binary.LittleEndian.Uint16(b[10:]))
	if len(b) != lostHead+closed*lostLane+count*lostRange {
		return t, nil, bad
	}
	b = b[lostHead:]
	for range closed {
		t.Closed = append(t.Closed, binary.LittleEndian.Uint16(b))
		b = b[lostLane:]
	}
	after := uint64(0)
	for range count {
		from, to := uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
		if from <= after || to < from || to >= Window {
			return t, nil, bad
		}
		after = to
		ranges = append(ranges, Range{From: ack + from, To: ack + to})
		b = b[lostRange:]
	}
	return t, ranges, nil
}
