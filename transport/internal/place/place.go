// Package place stores the bytes of Writes and Atomics in an order that lets a consumer poll the last word:
// when that has changed, all other bytes are in place.
package place

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Word returns the word at an aligned offset; all its bytes must lie in mem.
func Word(mem []byte, off int) *uint64 {
	_ = mem[off+verbs.WordSize-1]
	return (*uint64)(unsafe.Pointer(&mem[off]))
}

// maxWordCopy is the largest Write that is placed word by word.
const maxWordCopy = 64

// Bytes copies a Write, or the end of one: its last 8 bytes after all others, in one store if they are
// aligned.
func Bytes(dst, src []byte) {
	if len(src) > 0 {
		_ = dst[len(src)-1]
		At(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), len(src))
	}
}

// At is Bytes with addresses of n bytes (n > 0), which the caller has checked.
func At(d, s unsafe.Pointer, n int) {
	if n < verbs.WordSize {
		copy(unsafe.Slice((*byte)(d), n), unsafe.Slice((*byte)(s), n))
		return
	}
	n -= verbs.WordSize
	if n <= maxWordCopy-verbs.WordSize && n%verbs.WordSize == 0 {
		for at := 0; at < n; at += verbs.WordSize {
			*(*uint64)(unsafe.Add(d, at)) = *(*uint64)(unsafe.Add(s, at))
		}
	} else {
		copy(unsafe.Slice((*byte)(d), n), unsafe.Slice((*byte)(s), n))
	}
	Tail(unsafe.Add(d, n), *(*uint64)(unsafe.Add(s, n)))
}

// Tail stores 8 bytes after everything before, as one word if they are aligned.
func Tail(p unsafe.Pointer, v uint64) {
	if uintptr(p)%verbs.WordSize == 0 {
		sys.StoreRelease((*uint64)(p), v)
		return
	}
	sys.StoreBarrier()
	*(*[verbs.WordSize]byte)(p) = *(*[verbs.WordSize]byte)(unsafe.Pointer(&v))
}

// Original stores the previous value of the word into the local buffer of an Atomic.
func Original(w *verbs.Request, v uint64) {
	p := w.Local[0]
	var b [verbs.WordSize]byte
	binary.NativeEndian.PutUint64(b[:], v)
	Bytes(p.Region.Mem[p.Off:][:verbs.WordSize], b[:])
	w.Got = verbs.WordSize
}

// ErrUnaligned returns the error of an Atomic whose address is not aligned.
func ErrUnaligned(key transport.Key, off uint64) error {
	return fmt.Errorf("%w: Atomic at offset %d of the region of key %#x: the address is not a multiple of %d",
		transport.ErrAccess, off, uint64(key), verbs.WordSize)
}
