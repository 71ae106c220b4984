// Package uncached copies past the caches of the processor.
package uncached

import "unsafe"

const cacheLine = 64

// Copy is the built-in copy, for memory that another core reads next, and this one does not. The stores go
// past the caches: a line that one core has modified in its own cache comes to another one slower than a line
// comes from memory. The stores are weakly ordered: Fence goes between them and whatever tells another core
// that they are there.
func Copy(dst, src []byte) {
	n := min(len(dst), len(src))
	head := 0
	if n > 0 {
		head = min(int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%cacheLine), n)
	}
	lines := (n - head) &^ (cacheLine - 1)
	if lines == 0 {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	move(unsafe.Pointer(&dst[head]), unsafe.Pointer(&src[head]), uintptr(lines))
	copy(dst[head+lines:n], src[head+lines:n])
}

// Fence makes all earlier stores of Copy visible before later stores.
func Fence()

// move copies n > 0 bytes, which are whole cache lines at dst and do not overlap.
//
//go:noescape
func move(dst, src unsafe.Pointer, n uintptr)
