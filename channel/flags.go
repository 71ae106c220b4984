package channel

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/words"
)

// The flags of a message are two words, at the first and at the last 8 bytes of its lines, which follow from its length and from the
// generation of the lap. That starts at 64 random bits for each ring, known to its two ends alone, and steps by lapStep with each lap:
//
//	head = length of the body (24 bits) | low 40 bits of (generation + length × headMix) << 24
//	tail = generation (64 bits)
//
// Nothing is cleared when lines are freed (docs/adr/0003), so it must be clear why nothing else is taken for a message:
//
//   - A flag of an earlier lap is of another generation.
//   - Payload of an earlier lap can stand where a head is looked for. To be taken for one it would have to hold 40 bits that no
//     program sees; and since a machine that runs for weeks looks often enough for that, nothing at all follows from a head, not even
//     that its length makes no sense, before the tail that belongs to it is there: 64 such bits more.
//   - Of a message that is still arriving only the tail is promised to come last and as one word. Other words may be in place in part.
//     A new generation beside an old length would lead to the tail of the message behind this one, which may be there already:
//     but the upper bits of a head follow from its lower ones, and a step of the generation changes every byte of them, so it does
//     not match before all of it is there. (Where the old head is of an older lap than the last one, which is so behind the lines of a dialogue,
//     a byte may be the same; then it takes 40 bits that agree by chance.)
//
// A tail that matches was placed after everything else of its Write: all of the message is there.
const (
	lengthBits = 24
	lengthMask = 1<<lengthBits - 1
	headMix    = 0x9e3779b97f4a7c15 // odd, with ones all over
	lapStep    = 0xd1b54a32d192ed03 // odd, and no byte is 0 or 0xff: to add it changes every byte, with a carry or without
)

func headWord(generation uint64, n int) uint64 {
	return (generation+uint64(n)*headMix)<<lengthBits | uint64(n)
}

// The channel header is the second word of a message: the count of lines that its sender has consumed in the other direction (32
// bits), the kind (8 bits), whether the sender wants payload to be announced and not sent (1 bit), 7 bits that are zero, and, with the first
// message of a lap, the line where the lap before ended (16 bits).
func headerWord(consumed uint32, k Kind, hold bool, ended int) uint64 {
	w := uint64(consumed) | uint64(k)<<32 | uint64(ended)<<endedBit
	if hold {
		w |= 1 << holdBit
	}
	return w
}

const (
	holdBit  = 40
	endedBit = 48
)

// loadWord reads a flag that the peer may be placing. What is read after it is not older than what was placed before it.
func loadWord(ring []byte, at int) uint64 {
	return words.LittleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(&ring[at]))))
}
