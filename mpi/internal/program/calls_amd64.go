package program

import "encoding/binary"

// minFunction is the alignment of functions.
const minFunction = 32

// calls passes each direct call and jump in a segment to each: its return address, and its target. It does
// not decode instructions, so some are false.
func calls(s segment, each func(returns, callee uintptr) bool) {
	const call, jump = 0xe8, 0xe9 // with a distance of 32 bits
	for i := 0; i+5 <= len(s.data); i++ {
		if s.data[i] != call && s.data[i] != jump {
			continue
		}
		returns := s.at + uintptr(i) + 5
		distance := int32(binary.LittleEndian.Uint32(s.data[i+1:]))
		if !each(returns, returns+uintptr(distance)) {
			return
		}
	}
}
