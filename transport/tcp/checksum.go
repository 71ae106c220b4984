package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"

	"github.com/weft-mpi/weft/transport"
)

// Where two ends have agreed on it, a CRC32C (Castagnoli) of 4 bytes stands behind every header and another behind every payload that
// is not empty. A header is not believed, and a payload not delivered, before its CRC is found right.

// Checksum says when a device wishes a checksum in every frame. A connection has it if either side wishes it.
type Checksum uint8

const (
	ChecksumAuto   Checksum = iota // where the two ends are not the same machine
	ChecksumAlways                 //
	ChecksumNever                  // not of its own accord: the peer may still wish it
)

// wished tells whether a connection between two addresses is to have a checksum, as far as this side is asked.
func (c Checksum) wished(local, remote net.Addr) bool {
	return c == ChecksumAlways || c == ChecksumAuto && !sameMachine(local, remote)
}

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func putSum(b []byte, sum uint32) { binary.LittleEndian.PutUint32(b, sum) }

// headerSizeWith is what a header takes of the stream.
func headerSizeWith(checked bool) int {
	if checked {
		return headerSize + sumSize
	}
	return headerSize
}

// appendFrame appends a whole frame.
func appendFrame(b []byte, h header, payload []byte, checked bool) []byte {
	h.length = len(payload)
	b = h.append(b)
	if !checked {
		return append(b, payload...)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[len(b)-headerSize:], castagnoli))
	if len(payload) > 0 {
		b = append(b, payload...)
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	}
	return b
}

// sum puts the checksums of the frame that was made last into the room behind its header and behind its payload. The frame goes out as it
// stands now: what is copied stands in the outbox, and what is gathered from a request's memory must not change before that completes.
func (o *outbox) sum() {
	header := o.buf[o.begun:][:o.header-sumSize]
	putSum(o.buf[o.begun+len(header):], crc32.Checksum(header, castagnoli))
	copied := o.buf[o.begun+o.header : o.used]
	sum := crc32.Update(0, castagnoli, copied)
	gathered := o.vec[min(o.pieces+1, o.n):o.n] // behind the piece that the header ends
	for _, v := range gathered {
		sum = crc32.Update(sum, castagnoli, vecBytes(v))
	}
	if len(copied) > 0 || len(gathered) > 0 {
		putSum(o.room(sumSize), sum)
	}
}

// checkHeader checks a header's bytes, before anything of them is believed, against the CRC behind them.
func checkHeader(b []byte, size int) error {
	if sum, told := crc32.Checksum(b[:size], castagnoli), binary.LittleEndian.Uint32(b[size:]); sum != told {
		return damaged("a frame's header", sum, told)
	}
	return nil
}

// checkPayload checks what has come of the present frame's payload, all of it, against the CRC behind it. Only then are the last bytes of
// a Write placed, so that who polls them never takes a Write for complete that is damaged.
func (q *qp) checkPayload(sum []byte) error {
	i := &q.in
	if told := binary.LittleEndian.Uint32(sum); i.sum != told {
		return damaged(fmt.Sprintf("the payload of a %v of %d bytes", i.op, i.length), i.sum, told)
	}
	if i.held > 0 {
		if err := q.placeable(); err != nil {
			return err
		}
		q.placeHeld()
	}
	return nil
}

// damaged ends the connection over a CRC that is not what the bytes have.
func damaged(what string, sum, told uint32) error {
	return &violation{code: terminateChecksum, err: fmt.Errorf("%w: the CRC32C of %s is %08x where %08x was sent: bytes were changed on the way",
		transport.ErrProtocol, what, sum, told)}
}
