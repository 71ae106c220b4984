package program

import "encoding/binary"

// minFunction is the alignment of functions.
const minFunction = 16

// calls passes each direct call and jump in a segment to each: its return address, and its target.
func calls(s segment, each func(returns, callee uintptr) bool) {
	const branch, branchAndLink = 0x5, 0x25 // the upper 6 bits; the others are the distance in words
	for i := 0; i+4 <= len(s.data); i += 4 {
		w := binary.LittleEndian.Uint32(s.data[i:])
		if w>>26 != branch && w>>26 != branchAndLink {
			continue
		}
		at := s.at + uintptr(i)
		if !each(at+4, at+uintptr(int32(w<<6)>>4)) {
			return
		}
	}
}
