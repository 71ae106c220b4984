package coll

import (
	"encoding/binary"
	"math/rand/v2"
)

// pattern is the content of a block: it depends on the source and the place of each byte.
func pattern(source, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(source*31 + i*7 + i>>8 + 1)
	}
	return b
}

// concatenation joins ranges of ranks: associative, not commutative, and undefined unless the left range ends
// where the right one begins. An element is the first rank, the last rank, and its own index; a wrong join
// leaves an element that no further join makes right.
var concatenation = operator{16, func(dst, left, right []byte) {
	le := binary.LittleEndian
	first, last, index := le.Uint32(left), le.Uint32(right[4:]), le.Uint64(left[8:])
	if le.Uint32(left[4:])+1 != le.Uint32(right) || index != le.Uint64(right[8:]) {
		first, last, index = 0xDEAD0000, 0xDEAD8000, 1<<63
	}
	le.PutUint32(dst, first)
	le.PutUint32(dst[4:], last)
	le.PutUint64(dst[8:], index)
}}

func ranges(first, last, from, to int) []byte {
	var b []byte
	for i := from; i < to; i++ {
		b = binary.LittleEndian.AppendUint32(b, uint32(first))
		b = binary.LittleEndian.AppendUint32(b, uint32(last))
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
	}
	return b
}

// addition adds byte by byte: associative and commutative. The operands are random, so that one left out or
// taken twice shows.
func addition(elemSize int) operator {
	return operator{elemSize, func(dst, left, right []byte) {
		le := binary.LittleEndian
		for ; len(dst) >= 8; dst, left, right = dst[8:], left[8:], right[8:] {
			a, b := le.Uint64(left), le.Uint64(right)
			const top = 0x8080808080808080 // of each byte, which carries nothing into the next
			le.PutUint64(dst, (a&^top+b&^top)^(a^b)&top)
		}
		for i := range dst {
			dst[i] = left[i] + right[i]
		}
	}}
}

func random(source, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(source), byte(source >> 8), 3}).Read(b)
	return b
}

// sum is what addition makes of the random operands of the ranks from first up to last.
func sum(first, last, n int) []byte {
	total := make([]byte, n)
	for rank := first; rank < last; rank++ {
		addition(n).combine(total, total, random(rank, n))
	}
	return total
}
