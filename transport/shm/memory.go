package shm

import (
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
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

// word is the word at an aligned offset that has all its bytes in mem.
func word(mem []byte, off int) *uint64 {
	_ = mem[off+wordSize-1]
	return (*uint64)(unsafe.Pointer(&mem[off]))
}

// maxWordCopy is up to how many bytes a Write is placed word by word.
const maxWordCopy = 64

// place copies a Write, or the end of one: its last 8 bytes after all others, in one store where they are
// aligned, so that whoever polls them finds everything before them in place.
func place(dst, src []byte) {
	if len(src) > 0 {
		_ = dst[len(src)-1]
		placeAt(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), len(src))
	}
}

// placeAt is place by addresses, of n bytes (n > 0) that are there.
func placeAt(d, s unsafe.Pointer, n int) {
	if n < wordSize {
		copy(unsafe.Slice((*byte)(d), n), unsafe.Slice((*byte)(s), n))
		return
	}
	n -= wordSize
	if n <= maxWordCopy-wordSize && n%wordSize == 0 {
		for at := 0; at < n; at += wordSize {
			*(*uint64)(unsafe.Add(d, at)) = *(*uint64)(unsafe.Add(s, at))
		}
	} else {
		copy(unsafe.Slice((*byte)(d), n), unsafe.Slice((*byte)(s), n))
	}
	storeTail(unsafe.Add(d, n), *(*uint64)(unsafe.Add(s, n)))
}

// storeTail stores 8 bytes after everything before, as one word if they are aligned.
func storeTail(p unsafe.Pointer, v uint64) {
	if uintptr(p)%wordSize == 0 {
		sys.StoreRelease((*uint64)(p), v)
		return
	}
	sys.StoreBarrier()
	*(*[wordSize]byte)(p) = *(*[wordSize]byte)(unsafe.Pointer(&v))
}

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
