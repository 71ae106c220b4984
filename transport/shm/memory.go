package shm

import (
	"unsafe"

	"github.com/weft-mpi/weft/transport/internal/verbs"
)

const wordSize = verbs.WordSize

// touch reads a little of memory whose pages exist, so that the system maps several at once, rather than one
// with each first Write. The sum only keeps the compiler from removing the reads.
//
//go:noinline
func touch(mem []byte) (sum byte) {
	for at := 0; at < len(mem); at += mappedAtOnce {
		sum += mem[at]
	}
	return sum
}

// mappedAtOnce is the most memory that the system maps when one of its pages is read.
const mappedAtOnce = 64 << 10

// addressOf returns the address of memory in this process, to be sent to peers.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// The parts of an arena, by their offsets.

func controlBlockAt(mem []byte, off uint64) *controlBlock {
	return (*controlBlock)(unsafe.Pointer(&mem[off : off+blockSize][0]))
}

func doorbellAt(mem []byte, off uint64) *doorbell {
	return (*doorbell)(unsafe.Pointer(&mem[off : off+blockSize][0]))
}

// entryOffset returns the offset of an entry of the table of keys.
func entryOffset(index int) int64 {
	if index < firstKeys {
		return firstKeysAt + int64(index)*entrySize
	}
	return keysAt + int64(index-firstKeys)*entrySize
}

func entryAt(mem []byte, index int) *entry {
	off := entryOffset(index)
	return (*entry)(unsafe.Pointer(&mem[off : off+entrySize][0]))
}
