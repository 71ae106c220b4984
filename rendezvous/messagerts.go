package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// RTS (request to send) announces a whole message: its envelope, and where its bytes can be read.
type RTS struct {
	Context uint32
	Tag     int32
	Source
}

const rtsLen = 8 + sourceLen

// Append appends the RTS to b.
func (r RTS) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Context)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Tag))
	return r.Source.Append(b)
}

// ParseRTS parses what Append has written.
func ParseRTS(b []byte) (RTS, error) {
	if len(b) != rtsLen {
		return RTS{}, fmt.Errorf("%w: an RTS has %d bytes, not %d", transport.ErrProtocol, len(b), rtsLen)
	}
	r := RTS{Context: binary.LittleEndian.Uint32(b), Tag: int32(binary.LittleEndian.Uint32(b[4:]))}
	if r.Tag < 0 {
		return RTS{}, fmt.Errorf("%w: an RTS with tag %d", transport.ErrProtocol, r.Tag)
	}
	var err error
	r.Source, err = ParseSource(b[8:])
	return r, err
}
