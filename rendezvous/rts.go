package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// RTS (request to send) announces a message: what it is matched by, and where its bytes can be read.
type RTS struct {
	Context uint32
	Tag     int32
	ID      uint32 // of the announcement, for FIN
	Key     transport.Key
	Offset  uint64
	Length  uint64
}

const (
	rtsLen     = 36
	maxMessage = 1 << 46 // no message is longer; a length beyond it is nonsense
)

// Append writes the RTS behind b.
func (r RTS) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Context)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Tag))
	b = binary.LittleEndian.AppendUint32(b, r.ID)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Key))
	b = binary.LittleEndian.AppendUint64(b, r.Offset)
	return binary.LittleEndian.AppendUint64(b, r.Length)
}

// ParseRTS reads what Append has written.
func ParseRTS(b []byte) (RTS, error) {
	if len(b) != rtsLen {
		return RTS{}, fmt.Errorf("%w: an RTS has %d bytes, not %d", transport.ErrProtocol, rtsLen, len(b))
	}
	r := RTS{
		Context: binary.LittleEndian.Uint32(b),
		Tag:     int32(binary.LittleEndian.Uint32(b[4:])),
		ID:      binary.LittleEndian.Uint32(b[8:]),
		Key:     transport.Key(binary.LittleEndian.Uint64(b[12:])),
		Offset:  binary.LittleEndian.Uint64(b[20:]),
		Length:  binary.LittleEndian.Uint64(b[28:]),
	}
	if r.Tag < 0 || r.Length > maxMessage || r.Offset > maxMessage {
		return RTS{}, fmt.Errorf("%w: an RTS with tag %d, offset %d, length %d", transport.ErrProtocol, r.Tag, r.Offset, r.Length)
	}
	return r, nil
}
