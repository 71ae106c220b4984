package channel

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// resizeReply is the answer to ENLARGE or SHRINK, which is written into the sender's memory as one line with
// a head flag and a tail flag (E7): ACK with the new ring, or NACK.
type resizeReply struct {
	ack bool
	// of the new ring; these are 0 if the first ring stays alone
	shape      shape
	key        transport.Key // of its region
	offset     uint64        // of its first line
	generation uint64        // of its first wrap (flags.go)
}

const (
	replyLen  = lineSize
	replyTail = replyLen - 8

	kindACK  = 1
	kindNACK = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put fills a line with the reply to a request; generation is the nonce of the request:
//
//	0  head: the request's nonce         24  key of the new ring's region       48  zero
//	8  kind, phase, 2 zero bytes         32  offset of the ring in it           56  tail: the nonce again
//	12 slot size                         40  generation of its first wrap
//	16 lines
//	20 CRC-32C of bytes 8 to 20 and 24 to 56
func (a resizeReply) put(b []byte, generation uint64) {
	clear(b[:replyLen])
	binary.LittleEndian.PutUint64(b, generation)
	binary.LittleEndian.PutUint64(b[replyTail:], generation)
	b[8], b[9] = kindNACK, byte(a.shape.phase)
	if a.ack {
		b[8] = kindACK
	}
	if a.generation != 0 {
		binary.LittleEndian.PutUint32(b[12:], uint32(a.shape.slot))
		binary.LittleEndian.PutUint32(b[16:], uint32(a.shape.lines))
		binary.LittleEndian.PutUint64(b[24:], uint64(a.key))
		binary.LittleEndian.PutUint64(b[32:], a.offset)
		binary.LittleEndian.PutUint64(b[40:], a.generation)
	}
	binary.LittleEndian.PutUint32(b[20:], checksum(b))
}

func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[8:20], castagnoli), castagnoli, b[24:replyTail])
}

// replyFlags reports which flags of a reply have arrived; generation is the nonce of the request.
func replyFlags(b []byte, generation uint64) (head, tail bool) {
	head = loadWord(b, 0) == generation
	return head, head && loadWord(b, replyTail) == generation
}

// clearFlags prepares the slot for a reply, so that old bytes are not taken for it.
func clearFlags(b []byte) {
	for _, at := range [...]int{0, replyTail} {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[at])), 0)
	}
}

// errCorruptReply says that the checksum of a reply is wrong: the reply counts as not arrived.
var errCorruptReply = fmt.Errorf("%w: checksum of a resize reply", transport.ErrProtocol)

// parseReply parses a reply whose flags have arrived.
func parseReply(line []byte, phases []int) (resizeReply, error) {
	var b [replyLen]byte // the peer could write there at any time
	copy(b[:], line)
	if binary.LittleEndian.Uint32(b[20:]) != checksum(b[:]) {
		return resizeReply{}, errCorruptReply
	}
	phase := int(b[9])
	if phase >= len(phases) || b[10]|b[11] != 0 || b[8] != kindACK && b[8] != kindNACK {
		return resizeReply{}, fmt.Errorf("%w: a resize reply of kind %d for phase %d",
			transport.ErrProtocol, b[8], phase)
	}
	a := resizeReply{
		ack: b[8] == kindACK, shape: geometry(phases, phase),
		key:    transport.Key(binary.LittleEndian.Uint64(b[24:])),
		offset: binary.LittleEndian.Uint64(b[32:]), generation: binary.LittleEndian.Uint64(b[40:]),
	}
	slot, lines := binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	ring := a.generation != 0
	if zero := binary.LittleEndian.Uint64(b[48:]); zero != 0 || ring && !a.ack ||
		!ring && (slot|lines != 0 || a.key != 0 || a.offset != 0) {
		return resizeReply{}, fmt.Errorf("%w: a resize reply of kind %d with a ring %d of %d lines",
			transport.ErrProtocol, b[8], a.generation, lines)
	}
	if ring && (int(slot) != a.shape.slot || int(lines) != a.shape.lines || a.offset > maxOffset) {
		return resizeReply{},
			fmt.Errorf("%w: a ring of %d lines with slots of %d bytes at %d, where phase %d has %d of %d",
				transport.ErrProtocol, lines, slot, a.offset, phase, a.shape.lines, a.shape.slot)
	}
	return a, nil
}

// maxOffset is larger than any region with a ring.
const maxOffset = 1 << 40
