package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// If the two ends have agreed on it, a CRC32C (Castagnoli) of 4 bytes follows every header, and every payload
// that is not empty. A header is not used, and a payload not delivered, before its CRC has been verified.

const SumSize = 4

var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

func putSum(b []byte, sum uint32) { binary.LittleEndian.PutUint32(b, sum) }

// HeaderSizeWith returns the size of a header in the stream.
func HeaderSizeWith(checked bool) int {
	if checked {
		return HeaderSize + SumSize
	}
	return HeaderSize
}

// Append appends a whole frame.
func Append(b []byte, h Header, payload []byte, checked bool) []byte {
	h.Length = len(payload)
	return appendPayload(h.Append(b), HeaderSize, payload, checked)
}

// appendPayload completes a frame of which b ends with the header, of some size.
func appendPayload(b []byte, header int, payload []byte, checked bool) []byte {
	if !checked {
		return append(b, payload...)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[len(b)-header:], Castagnoli))
	if len(payload) > 0 {
		b = append(b, payload...)
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, Castagnoli))
	}
	return b
}

// CheckHeader verifies a header of size bytes against the CRC after it.
func CheckHeader(b []byte, size int) error {
	if sum, told := crc32.Checksum(b[:size], Castagnoli), binary.LittleEndian.Uint32(b[size:]); sum != told {
		return Damaged("a frame's header", sum, told)
	}
	return nil
}

// CheckPayload compares sum, the CRC of a payload, with the CRC after it.
func CheckPayload(told []byte, sum uint32, o Op, length int) error {
	if want := binary.LittleEndian.Uint32(told); sum != want {
		return Damaged(fmt.Sprintf("the payload of a %v of %d bytes", o, length), sum, want)
	}
	return nil
}

// Damaged returns the error of a wrong CRC, which ends the connection.
func Damaged(what string, sum, told uint32) error {
	return &violation.Error{Reason: violation.Checksum,
		Err: fmt.Errorf("%w: the CRC32C of %s is %08x where %08x was sent: bytes were changed on the way",
			transport.ErrProtocol, what, sum, told)}
}
