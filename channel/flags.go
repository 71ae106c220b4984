package channel

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// The flags of a message are two words, at the first and at the last 8 bytes of its lines:
//
//	head = generation of the lap (40 bits) << 24 | length of the body
//	tail = head XOR seal
//
// The generation starts at random for each ring and steps by one with each lap; the seal is 64 random bits of the ring. Both are
// known to the two ends alone. Nothing is cleared when lines are freed, so it must be clear why nothing older is taken for a
// message:
//
//   - A flag of an earlier lap has another generation, for 2^40 laps.
//   - Payload of an earlier lap can stand where a head is looked for, and be equal to one. Then the tail that belongs to
//     just this head must stand at its place: 64 bits that no program sees.
//   - Of a message that is still arriving only the last 8 bytes are promised to come last, so the new generation may be seen
//     beside an old length, or only a part of either. The tail word of a message behind this one can be in place already, but it names
//     its own length, and a length and the line in which it ends leave one line at which that message can begin. So a
//     head never accepts the tail of another message.
//
// A tail that matches was placed as one word after everything else of its Write: all of the message is there.
const (
	lengthBits     = 24
	lengthMask     = 1<<lengthBits - 1
	generationMask = 1<<(64-lengthBits) - 1
)

func headWord(generation uint64, n int) uint64 { return generation<<lengthBits | uint64(n) }

// The channel header is the second word of a message: the count of lines that its sender has consumed in the other direction, and
// the kind. The upper 24 bits are zero.
func headerWord(consumed uint32, k Kind) uint64 { return uint64(consumed) | uint64(k)<<32 }

// loadWord reads a flag that the peer may be placing. What is read after it is not older than what was placed before it.
func loadWord(ring []byte, at int) uint64 {
	return littleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(&ring[at]))))
}

// littleEndian turns a word that was loaded in the machine's order into the value that its bytes have on the wire.
func littleEndian(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}
