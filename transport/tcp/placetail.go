package tcp

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport/internal/verbs"
)

const wordSize = verbs.WordSize

// word is the word at an aligned offset that has all its bytes in mem.
func word(mem []byte, off int) *uint64 {
	_ = mem[off+wordSize-1]
	return (*uint64)(unsafe.Pointer(&mem[off]))
}

// tailSize is how much of a Write is placed last, and where it is aligned as one word.
const tailSize = 8

// placeTail copies the end of a Write: its last 8 bytes after all others, in one store where they are
// aligned, so that whoever polls them finds everything before them in place.
func placeTail(dst, src []byte) {
	n := len(src) - tailSize
	if n < 0 {
		copy(dst, src)
		return
	}
	copy(dst[:n], src[:n])
	last := unsafe.Pointer(&dst[n])
	if uintptr(last)%tailSize != 0 {
		copy(dst[n:], src[n:])
		return
	}
	var v uint64
	copy((*[tailSize]byte)(unsafe.Pointer(&v))[:], src[n:])
	atomic.StoreUint64((*uint64)(last), v)
}
