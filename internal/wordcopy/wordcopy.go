// Package wordcopy has what moves small messages a word at a time.
package wordcopy

import "encoding/binary"

// Size is the length of a word in bytes.
const Size = 8

// maxBytes is the number of bytes up to which words are copied. Beyond it the built-in copy is faster.
const maxBytes = 64

// Copy is the built-in copy, quicker for the few words that most messages are.
func Copy(dst, src []byte) {
	n := min(len(dst), len(src))
	if n < Size || n > maxBytes {
		copy(dst, src)
		return
	}
	for at := 0; at < n-Size; at += Size {
		Put(dst, at, Get(src, at))
	}
	// some of it for the second time, if there is not a whole number of words
	Put(dst, n-Size, Get(src, n-Size))
}

// Get reads the word, little-endian, that begins at a byte.
func Get(b []byte, at int) uint64 {
	_ = b[at+Size-1]
	// full slice expression, so that no bounds are computed
	return binary.LittleEndian.Uint64(b[at : at+Size : at+Size])
}

// Put writes such a word.
func Put(b []byte, at int, w uint64) {
	_ = b[at+Size-1]
	binary.LittleEndian.PutUint64(b[at:at+Size:at+Size], w)
}
