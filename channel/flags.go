package channel

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/wordcopy"
)

// The flags of a message are two words, the first and the last of its lines. They follow from its length and
// from the generation of the wrap. For the first wrap of a ring that is 64 random bits, known only to the two
// ends; each wrap adds wrapStep:
//
//	head = length of the body (24 bits) | low 40 bits of (generation + length × headMix) << 24
//	tail = generation (64 bits)
//
// Nothing is cleared when lines are freed (docs/internals/adr/0023). docs/internals/spec/channel.md shows why
// nothing else is taken for a message. The code relies on two rules: a head means nothing until its tail has
// arrived, and a matching tail was placed after everything else of its Write.
const (
	lengthBits = 24
	lengthMask = 1<<lengthBits - 1
	headMix    = 0x9e3779b97f4a7c15 // odd, with ones all over
	// odd, and no byte is 0 or 0xff: adding it changes every byte, with or without a carry
	wrapStep = 0xd1b54a32d192ed03
)

func headWord(generation uint64, n int) uint64 {
	return (generation+uint64(n)*headMix)<<lengthBits | uint64(n)
}

// headerWord returns the second word of a message: the count of lines that its sender has consumed in the
// other direction (32 bits), the kind (8 bits), whether the sender refuses payload, which must then be
// announced (1 bit), whether the receiver is to take over the lines (1 bit, takeover.go), 6 zero bits, and,
// in the first message of a wrap, the line where the previous wrap ended (16 bits).
func headerWord(consumed uint32, k Kind, refusePayload bool, prevEnd int) uint64 {
	w := uint64(consumed) | uint64(k)<<32 | uint64(prevEnd)<<prevEndBit
	if refusePayload {
		w |= 1 << refusePayloadBit
	}
	return w
}

const (
	refusePayloadBit = 40
	takeoverBit      = 41
	prevEndBit       = 48
)

// loadWord reads a flag that the peer may be placing. Later reads return data at least as new as what was
// placed before the flag.
func loadWord(ring []byte, at int) uint64 {
	return wordcopy.LittleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(&ring[at]))))
}
