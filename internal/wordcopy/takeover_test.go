package wordcopy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTakeOver leaves what is there, and needs no whole lines.
func TestTakeOver(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 1000, 1024} {
		b, want := make([]byte, n), make([]byte, n)
		for i := range b {
			b[i] = byte(7 * i)
		}
		copy(want, b)
		TakeOver(b)
		require.Equal(t, want, b)
	}
}
