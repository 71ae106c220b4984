package channel

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/wordcopy"
)

// The flags of a message are two words, the first and the last of its lines, which follow from its length and
// from the generation of the wrap. That starts at 64 random bits for each ring, known to its two ends alone,
// and steps by wrapStep with each wrap:
//
//	head = length of the body (24 bits) | low 40 bits of (generation + length × headMix) << 24
//	tail = generation (64 bits)
//
// Nothing is cleared when lines are freed (docs/internals/adr/0023). docs/internals/spec/channel.md shows why
// nothing else is taken for a message; the code relies on this: nothing follows from a head before the tail
// that belongs to it is there, and a tail that matches was placed after everything else of its Write.
const (
	lengthBits = 24
	lengthMask = 1<<lengthBits - 1
	headMix    = 0x9e3779b97f4a7c15 // odd, with ones all over
	// odd, and no byte is 0 or 0xff: to add it changes every byte, with a carry or without
	wrapStep = 0xd1b54a32d192ed03
)

func headWord(generation uint64, n int) uint64 {
	return (generation+uint64(n)*headMix)<<lengthBits | uint64(n)
}

// headerWord is the second word of a message: the count of lines that its sender has consumed in the other
// direction (32 bits), the kind (8 bits), whether the sender refuses payload, which is to be announced
// instead (1 bit), 7 bits that are zero, and, with the first message of a wrap, the line where the wrap
// before ended (16 bits).
func headerWord(consumed uint32, k Kind, refusePayload bool, prevEnd int) uint64 {
	w := uint64(consumed) | uint64(k)<<32 | uint64(prevEnd)<<prevEndBit
	if refusePayload {
		w |= 1 << refusePayloadBit
	}
	return w
}

const (
	refusePayloadBit = 40
	prevEndBit       = 48
)

// loadWord reads a flag that the peer may be placing. What is read after it is not older than what was placed
// before it.
func loadWord(ring []byte, at int) uint64 {
	return wordcopy.LittleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(&ring[at]))))
}
