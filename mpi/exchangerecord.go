package mpi

import (
	"encoding/binary"
	"fmt"
)

// A message of an exchange is the length of its records in bytes, and the records. A record is a header and
// the bytes that one rank sends to another, padded to the next header's alignment. If the records are longer
// than exchangeInline, the message ends after the first header, and the rest comes in a second message.
const (
	exchangeLengthBytes = 8
	exchangeHeaderBytes = 16 // origin, destination, length
	exchangeInline      = 4 << 10
)

// exchangeRecord is the bytes that one rank sends to another.
type exchangeRecord struct {
	origin, dest int
	block        []byte
	order        int // sort key: the order in which an exchange sends
}

// size is the number of bytes of a record in a message.
func (r *exchangeRecord) size() int { return exchangeHeaderBytes + len(r.block) + r.padding() }

// sizeAtEnd is size without padding: the only record of a long message has none.
func (r *exchangeRecord) sizeAtEnd() int { return exchangeHeaderBytes + len(r.block) }

func (r *exchangeRecord) padding() int { return -len(r.block) & 7 }

func (r *exchangeRecord) appendHeader(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r.origin))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.dest))
	return binary.LittleEndian.AppendUint64(b, uint64(len(r.block)))
}

func (r *exchangeRecord) append(b []byte) []byte {
	var zeroes [7]byte
	b = append(r.appendHeader(b), r.block...)
	return append(b, zeroes[:r.padding()]...)
}

// cutRecord removes the first record. The last one may have no padding.
func cutRecord(b []byte) (r exchangeRecord, rest []byte, err error) {
	if len(b) < exchangeHeaderBytes {
		return r, nil, fmt.Errorf("%w: %d bytes are no record of an exchange", ErrCount, len(b))
	}
	r.origin = int(binary.LittleEndian.Uint32(b))
	r.dest = int(binary.LittleEndian.Uint32(b[4:]))
	n := binary.LittleEndian.Uint64(b[8:])
	if b = b[exchangeHeaderBytes:]; n > uint64(len(b)) {
		return r, nil, fmt.Errorf("%w: a record of %d bytes in an exchange, of which %d came", ErrCount, n,
			len(b))
	}
	r.block = b[:n:n]
	return r, b[min(len(r.block)+r.padding(), len(b)):], nil
}
