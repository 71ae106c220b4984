package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// CTS (clear to send) grants a part of the receiver's memory to the next bytes of an announced message, to
// which the sender writes them. A message has one CTS or several for each of its receiver's buffers, in
// order.
type CTS struct {
	ID     uint64 // of the announcement
	Grant  uint64 // for the immediate that ends it; below 2^31
	Key    transport.Key
	Offset uint64
	Length uint64 // not 0
	Last   bool   // the receiver takes no more of the message
}

const (
	ctsLen  = 40 // with the channel's overhead, one line of a ring
	lastBit = 1 << 63
	idBits  = 1<<63 - 1 // of announcements

	// in the id of an announcement: it ends with ATS, because no receive request is posted for FIN
	endsWithATS = 1 << 62
	// or: it ends with a FIN word
	endsWithWord = 1 << 61
)

// Append appends the CTS to b.
func (c CTS) Append(b []byte) []byte {
	length := c.Length
	if c.Last {
		length |= lastBit
	}
	b = binary.LittleEndian.AppendUint64(b, c.ID)
	b = binary.LittleEndian.AppendUint64(b, c.Grant)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Key))
	b = binary.LittleEndian.AppendUint64(b, c.Offset)
	return binary.LittleEndian.AppendUint64(b, length)
}

// ParseCTS parses what Append has written.
func ParseCTS(b []byte) (CTS, error) {
	if len(b) != ctsLen {
		return CTS{}, fmt.Errorf("%w: a CTS has %d bytes, not %d", transport.ErrProtocol, len(b), ctsLen)
	}
	length := binary.LittleEndian.Uint64(b[32:])
	c := CTS{
		ID:     binary.LittleEndian.Uint64(b),
		Grant:  binary.LittleEndian.Uint64(b[8:]),
		Key:    transport.Key(binary.LittleEndian.Uint64(b[16:])),
		Offset: binary.LittleEndian.Uint64(b[24:]),
		Length: length &^ lastBit,
		Last:   length&lastBit != 0,
	}
	if c.ID > idBits || c.Grant > maxGrant || c.Offset > maxMessage || c.Length == 0 ||
		c.Length > maxMessage {
		return CTS{}, fmt.Errorf("%w: a CTS of %d bytes at offset %d for announcement %#x, grant %#x",
			transport.ErrProtocol, c.Length, c.Offset, c.ID, c.Grant)
	}
	return c, nil
}
