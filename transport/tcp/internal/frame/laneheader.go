package frame

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Over lanes three words follow a frame's header: the frame's sequence number in its direction (0 for an
// unsequenced frame), the smallest number of the other direction that has not arrived, and a reference that
// lets the frame be placed even if earlier ones are missing. The header's lane field has the number of the
// lane.
const (
	LaneWords      = 24
	LaneHeaderSize = HeaderSize + LaneWords
)

// LaneHeaderSizeWith returns the size of a header over lanes.
func LaneHeaderSizeWith(checked bool) int { return HeaderSizeWith(checked) + LaneWords }

// LaneHeader is a header over lanes.
type LaneHeader struct {
	Header
	Number uint64 // 0: unsequenced
	Ack    uint64

	// Ref is, for a Write, the number of its first frame; for a ReadWrite, the number of its Read; for a
	// ReadRequest or an Atomic, how many preceded it; for a Terminate, the number of the wrong frame.
	Ref uint64
}

// PutWords adds the words of lanes to a header in b.
func PutWords(b []byte, number uint16, n, ack, ref uint64) {
	_ = b[LaneHeaderSize-1]
	binary.LittleEndian.PutUint16(b[6:], number)
	binary.LittleEndian.PutUint64(b[HeaderSize:], n)
	binary.LittleEndian.PutUint64(b[HeaderSize+8:], ack)
	binary.LittleEndian.PutUint64(b[HeaderSize+16:], ref)
}

// ParseOverLane parses a header of a lane, and returns an error for an invalid one.
func ParseOverLane(b []byte, number uint16) (h LaneHeader, err error) {
	_ = b[LaneHeaderSize-1]
	if h.Header, err = parseOf(b, number); err != nil {
		return h, err
	}
	if h.Op == Lost && h.Flags != Last {
		return h, unknownHeader(b, h.Op.String())
	}
	h.Number = binary.LittleEndian.Uint64(b[HeaderSize:])
	h.Ack = binary.LittleEndian.Uint64(b[HeaderSize+8:])
	h.Ref = binary.LittleEndian.Uint64(b[HeaderSize+16:])
	if h.Op.sequenced() != (h.Number != 0) {
		return h, fmt.Errorf("%w: %v with sequence number %d", transport.ErrProtocol, h.Op, h.Number)
	}
	return h, nil
}

var emptyLaneHeader [LaneHeaderSize]byte

// AppendOverLane appends a whole frame of a lane.
func AppendOverLane(b []byte, h Header, number uint16, n, ack, ref uint64, payload []byte,
	checked bool) []byte {
	at := len(b)
	h.Length = len(payload)
	b = append(b, emptyLaneHeader[:]...)
	h.Put(b[at:])
	PutWords(b[at:], number, n, ack, ref)
	return appendPayload(b, LaneHeaderSize, payload, checked)
}
