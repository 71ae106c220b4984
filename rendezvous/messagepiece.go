package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Source is where an announced message, or an announced element of one, can be read. It is the body of a
// PIECE.
type Source struct {
	// of the announcement, for FIN, ATS, CTS and WITHDRAW; below 2^63; endsWithATS and endsWithWord say how
	// it ends
	ID     uint64
	Key    transport.Key
	Offset uint64
	Length uint64
}

const (
	sourceLen  = 32
	maxMessage = 1 << 46 // no message is longer; a length beyond it is nonsense
)

// Append appends the source to b.
func (s Source) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.ID)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Key))
	b = binary.LittleEndian.AppendUint64(b, s.Offset)
	return binary.LittleEndian.AppendUint64(b, s.Length)
}

// ParseSource parses what Append has written.
func ParseSource(b []byte) (Source, error) {
	if len(b) != sourceLen {
		return Source{}, fmt.Errorf("%w: the source of a message has %d bytes, not %d",
			transport.ErrProtocol, len(b), sourceLen)
	}
	s := Source{
		ID:     binary.LittleEndian.Uint64(b),
		Key:    transport.Key(binary.LittleEndian.Uint64(b[8:])),
		Offset: binary.LittleEndian.Uint64(b[16:]),
		Length: binary.LittleEndian.Uint64(b[24:]),
	}
	if s.ID > idBits || s.Length > maxMessage || s.Offset > maxMessage {
		return Source{}, fmt.Errorf("%w: a message announced at offset %d with %d bytes as %#x",
			transport.ErrProtocol, s.Offset, s.Length, s.ID)
	}
	return s, nil
}
