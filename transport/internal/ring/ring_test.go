package ring

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A queue whose counts go round, and that grows in whatever place it stands, against a slice.
func TestGrow(t *testing.T) {
	var ring []int
	var like []int
	head := uint32(math.MaxUint32 - 5)
	tail := head
	for n := range 100 {
		if int(tail-head) == len(ring) {
			before := len(ring)
			ring = Grow(ring, head, tail)
			require.Len(t, ring, max(2, 2*before))
		}
		ring[tail&uint32(len(ring)-1)] = n
		like = append(like, n)
		tail++
		if n%3 == 2 {
			head, like = head+1, like[1:]
		}
		for i, want := range like {
			require.Equal(t, want, ring[(head+uint32(i))&uint32(len(ring)-1)])
		}
	}
}
