package frame

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/transport"
)

const (
	MaxSegments = 8 // of a list in a ReadRequest
	SegmentSize = 24

	// MaxOffset is the limit of offsets in the destination of a Read: the higher bits of the word b of a
	// ReadWrite are its immediate data.
	MaxOffset = 1 << offsetBits

	offsetBits = 48
)

// Placement returns the word b of a ReadWrite: the offset of its payload, and the immediate data, which is 0
// except in the last Write of a Read.
func Placement(offset, immediate uint64) uint64 { return offset | immediate<<offsetBits }

// SplitPlacement returns the two parts of a Placement.
func SplitPlacement(b uint64) (offset, immediate uint64) { return b & (MaxOffset - 1), b >> offsetBits }

// ReadImmediate returns the immediate data of the last Write of a Read: the low bits of its number. No two
// outstanding Reads have the same.
func ReadImmediate(number uint64) uint64 { return number & (1<<(64-offsetBits) - 1) }

func PutSegment(b []byte, s transport.Segment) {
	binary.LittleEndian.PutUint64(b, uint64(s.Key))
	binary.LittleEndian.PutUint64(b[8:], s.Offset)
	binary.LittleEndian.PutUint64(b[16:], s.Length)
}

func ParseSegment(b []byte) transport.Segment {
	return transport.Segment{
		Key:    transport.Key(binary.LittleEndian.Uint64(b)),
		Offset: binary.LittleEndian.Uint64(b[8:]),
		Length: binary.LittleEndian.Uint64(b[16:]),
	}
}
