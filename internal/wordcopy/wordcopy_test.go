package wordcopy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopy_IsTheBuiltInOne tries every pair of lengths around what is copied word by word.
func TestCopy_IsTheBuiltInOne(t *testing.T) {
	src := make([]byte, maxBytes+10)
	for i := range src {
		src[i] = byte(3*i + 1)
	}
	for room := range maxBytes + 10 {
		for n := range maxBytes + 10 {
			got, want := make([]byte, maxBytes+20), make([]byte, maxBytes+20)
			Copy(got[3:3+room], src[1:1+min(n, len(src)-1)])
			copy(want[3:3+room], src[1:1+min(n, len(src)-1)])
			require.Equal(t, want, got, "%d bytes to %d", n, room)
		}
	}
}

func TestPut_IsLittleEndian(t *testing.T) {
	b := make([]byte, 10)
	Put(b, 1, 0x0807060504030201)
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 0}, b)
	require.EqualValues(t, 0x0807060504030201, Get(b, 1))
	require.Panics(t, func() { Get(b[:8], 1) },
		"what is after a slice is not read, even where there is room")
}
