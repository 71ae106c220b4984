package sys

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopyLong_IsTheBuiltInOne: of every length around the limit, to every place in a cache line.
func TestCopyLong_IsTheBuiltInOne(t *testing.T) {
	src := make([]byte, 5000)
	for i := range src {
		src[i] = byte(7*i + i>>8)
	}
	for at := range 65 {
		for _, n := range []int{0, 1, 2047, 2048, 2049, 4096, 4999 - 65} {
			got, want := make([]byte, 5100), make([]byte, 5100)
			CopyLong(got[at:at+n], src[at:])
			copy(want[at:at+n], src[at:])
			require.Equal(t, want, got, "%d bytes at %d", n, at)
		}
	}
}
