package frame

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/transport"
)

const (
	MaxSegments = 8 // of a list in a ReadRequest
	SegmentSize = 24

	// MaxOffset is the end of what offsets in a destination of a Read can be: the bits above it in the word b
	// of a ReadWrite are its immediate data.
	MaxOffset = 1 << offsetBits

	offsetBits = 48
)

// Placement is the word b of a ReadWrite: where its payload goes, and the immediate data, which is 0 unless
// it is the last Write of a Read.
func Placement(offset, immediate uint64) uint64 { return offset | immediate<<offsetBits }

// SplitPlacement takes it apart.
func SplitPlacement(b uint64) (offset, immediate uint64) { return b & (MaxOffset - 1), b >> offsetBits }

// ReadImmediate is the immediate data of the last Write of a Read: what fits of its number. No two Reads that
// are outstanding have the same.
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
