package uncached

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopy_IsTheBuiltInOne: of lengths around those of lines, from and to every place in a line.
func TestCopy_IsTheBuiltInOne(t *testing.T) {
	src := make([]byte, 5000)
	for i := range src {
		src[i] = byte(7*i + i>>8)
	}
	for at := range 65 {
		for _, n := range []int{0, 1, 63, 64, 65, 127, 128, 2048, 4096, 4999 - 65} {
			got, want := make([]byte, 5100), make([]byte, 5100)
			Copy(got[at:at+n], src[65-at:])
			Fence()
			copy(want[at:at+n], src[65-at:])
			require.Equal(t, want, got, "%d bytes at %d", n, at)
		}
	}
}
