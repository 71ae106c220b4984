package frame

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Flags of a frame.
const (
	Last       = 1 << 0 // last frame of a message
	Solicited  = 1 << 1 // its completion raises a solicited event
	KnownFlags = Last | Solicited
)

const (
	HeaderSize = 24

	// MaxPayload is the largest payload of a frame, so that small messages can be sent between the frames of
	// large ones.
	MaxPayload = 128 << 10

	MaxControl = 2 * MaxSegments * SegmentSize // payload of a ReadRequest or a Terminate
)

// Header is a frame's beginning, little-endian: payload length (4 bytes), op (1), flags (1), lane (2), a (8),
// b (8).
type Header struct {
	Length int
	Op     Op
	Flags  uint8
	A, B   uint64
}

func (h Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b, uint64(uint32(h.Length))|uint64(h.Op)<<32|uint64(h.Flags)<<40)
	binary.LittleEndian.PutUint64(b[8:], h.A)
	binary.LittleEndian.PutUint64(b[16:], h.B)
}

func (h Header) Append(b []byte) []byte {
	b = append(b, make([]byte, HeaderSize)...)
	h.Put(b[len(b)-HeaderSize:])
	return b
}

// Parse parses a header of a singleLink, and returns an error for an invalid one.
func Parse(b []byte) (Header, error) {
	h, err := parseOf(b, 0)
	if err == nil && h.Op == Lost {
		return Header{}, unknownHeader(b, fmt.Sprintf("frame type %d", uint8(Lost)))
	}
	return h, err
}

// parseOf parses a header that was received over a lane; a singleLink counts as lane 0.
func parseOf(b []byte, lane uint16) (Header, error) {
	_ = b[HeaderSize-1]
	w := binary.LittleEndian.Uint64(b)
	h := Header{
		Length: int(uint32(w)), Op: Op(w >> 32), Flags: uint8(w >> 40),
		A: binary.LittleEndian.Uint64(b[8:]), B: binary.LittleEndian.Uint64(b[16:]),
	}
	if h.Op == 0 || h.Op >= end || h.Flags&^KnownFlags != 0 || uint16(w>>48) != lane {
		return Header{}, unknownHeader(b, h.Op.String())
	}
	if limit := opcodes[h.Op].maxPayload; h.Length > limit {
		return Header{}, fmt.Errorf("%w: %v of %d bytes, at most %d", transport.ErrProtocol, h.Op, h.Length,
			limit)
	}
	return h, nil
}

func unknownHeader(b []byte, what string) error {
	return fmt.Errorf("%w: %s with flags %#x", transport.ErrProtocol, what, binary.LittleEndian.Uint64(b)>>40)
}
