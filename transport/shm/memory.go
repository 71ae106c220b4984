package shm

import (
	"unsafe"

	"github.com/weft-mpi/weft/transport/internal/verbs"
)

const wordSize = verbs.WordSize

// touch reads a little of memory whose pages are there, so that they are mapped here several at once, and not
// each by the first Write to it. The sum says nothing; without one, or with the caller knowing that, the
// reads could be left out.
//
//go:noinline
func touch(mem []byte) (sum byte) {
	for at := 0; at < len(mem); at += mappedAtOnce {
		sum += mem[at]
	}
	return sum
}

// mappedAtOnce is how much a system maps at most when one of its pages is read.
const mappedAtOnce = 64 << 10

// addressOf is where memory lies, to be told to others.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// The parts of an arena, by their offsets.

func controlBlockAt(mem []byte, off uint64) *controlBlock {
	return (*controlBlock)(unsafe.Pointer(&mem[off : off+blockSize][0]))
}

func doorbellAt(mem []byte, off uint64) *doorbell {
	return (*doorbell)(unsafe.Pointer(&mem[off : off+blockSize][0]))
}

func entryAt(mem []byte, index int) *entry {
	off := int64(index) * entrySize
	return (*entry)(unsafe.Pointer(&mem[off : off+entrySize][0]))
}
