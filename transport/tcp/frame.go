package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// op says what a frame is. All frames begin with a header of 24 bytes; the two words at its end mean what the comment says.
type op uint8

const (
	opReady       op = iota + 1 // the initiator is in RDMA mode; first frame, once
	opWrite                     // tagged: key, offset
	opSend                      // untagged: message number, offset in the message; flagLast on the last
	opImmediate                 // untagged: message number, the immediate; ends a Write with immediate
	opReadRequest               // number of the read, segments (source << 32 | destination); payload: the segments
	opReadWrite                 // tagged, a Write that a Read asked for: key, offset
	opReadDone                  // immediate data of the last Write of a read: number of the read, bytes
	opClose                     // no request follows from this side; it still answers Reads
	opTerminate                 // last frame, cut: layer/type/code, number of a read or none; payload: text
	opAlive                     // nothing but that this side lives: see pulse.go
	opAtomic                    // number in the sequence of the reads, operation; payload: the word, the operands
	opAtomicDone                // number, the word as it was
	opInvalidate                // untagged: message number, key; ends a Send with invalidate
	ops
)

func (o op) String() string {
	names := [...]string{"", "Ready", "Write", "Send", "Immediate", "ReadRequest", "ReadWrite", "ReadDone", "Close", "Terminate",
		"Alive", "Atomic", "AtomicDone", "Invalidate"}
	if int(o) < len(names) && o != 0 {
		return names[o]
	}
	return fmt.Sprintf("frame type %d", uint8(o))
}

// Flags of a frame.
const (
	flagLast      = 1 << 0 // of the frames of a message
	flagSolicited = 1 << 1 //
	flagsKnown    = flagLast | flagSolicited
)

const (
	headerSize   = 24
	framePayload = 128 << 10 // the most that a frame carries, so that small messages get in between large ones
	segmentSize  = 24
	maxControl   = 2 * maxSegments * segmentSize // payload of a frame that is not placed in registered memory
)

// header is a frame's beginning, little-endian: payload length (4 bytes), op (1), flags (1), reserved for the lane (2), a (8), b (8).
type header struct {
	length int
	op     op
	flags  uint8
	a, b   uint64
}

func (h header) put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint64(b, uint64(uint32(h.length))|uint64(h.op)<<32|uint64(h.flags)<<40)
	binary.LittleEndian.PutUint64(b[8:], h.a)
	binary.LittleEndian.PutUint64(b[16:], h.b)
}

func (h header) append(b []byte) []byte {
	b = append(b, make([]byte, headerSize)...)
	h.put(b[len(b)-headerSize:])
	return b
}

// parseHeader reads a header and refuses what no weft sends.
func parseHeader(b []byte) (header, error) { return parseHeaderOf(b, 0) }

// parseHeaderOf reads a header that a lane carries.
func parseHeaderOf(b []byte, lane uint16) (header, error) {
	_ = b[headerSize-1]
	w := binary.LittleEndian.Uint64(b)
	h := header{
		length: int(uint32(w)), op: op(w >> 32), flags: uint8(w >> 40),
		a: binary.LittleEndian.Uint64(b[8:]), b: binary.LittleEndian.Uint64(b[16:]),
	}
	if h.op == 0 || h.op >= ops || h.flags&^flagsKnown != 0 || uint16(w>>48) != lane {
		return header{}, fmt.Errorf("%w: %v with flags %#x", transport.ErrProtocol, h.op, w>>40)
	}
	most := 0
	switch h.op {
	case opWrite, opSend, opReadWrite:
		most = framePayload
	case opReadRequest, opTerminate:
		most = maxControl
	case opAtomic:
		most = atomicSize
	}
	if h.length > most {
		return header{}, fmt.Errorf("%w: %v of %d bytes, at most %d", transport.ErrProtocol, h.op, h.length, most)
	}
	return h, nil
}

func putSegment(b []byte, s transport.Segment) {
	binary.LittleEndian.PutUint64(b, uint64(s.Key))
	binary.LittleEndian.PutUint64(b[8:], s.Offset)
	binary.LittleEndian.PutUint64(b[16:], s.Length)
}

func parseSegment(b []byte) transport.Segment {
	return transport.Segment{
		Key:    transport.Key(binary.LittleEndian.Uint64(b)),
		Offset: binary.LittleEndian.Uint64(b[8:]),
		Length: binary.LittleEndian.Uint64(b[16:]),
	}
}
