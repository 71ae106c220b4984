package wordcopy

import (
	"sync/atomic"
	"unsafe"
)

// cacheLine is the length of a cache line.
const cacheLine = 64

// TakeOver writes to each cache line of memory that begins with one what is there. Another core, which has
// written the lines before, then writes them faster again on some processors.
func TakeOver(lines []byte) {
	for ; len(lines) >= cacheLine; lines = lines[cacheLine:] {
		p := (*uint64)(unsafe.Pointer(&lines[0]))
		*p = atomic.LoadUint64(p) // the compiler would drop the store of a plain load
	}
}
