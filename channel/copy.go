package channel

import "encoding/binary"

// Copy is the built-in copy, quicker for the few words that most messages are.
func Copy(dst, src []byte) {
	if len(src) > lineSize {
		copy(dst, src)
		return
	}
	for len(src) >= wordSize && len(dst) >= wordSize {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src))
		dst, src = dst[wordSize:], src[wordSize:]
	}
	if len(src) > 0 {
		copy(dst, src)
	}
}
