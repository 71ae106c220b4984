package frame

import (
	"encoding/binary"

	"github.com/weft-mpi/weft/transport"
)

const (
	MaxSegments = 8 // of a list in a ReadRequest
	SegmentSize = 24
)

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
