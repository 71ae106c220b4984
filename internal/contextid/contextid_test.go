package contextid

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The contexts of two communicators that follow one another are all different, and each leads back to its
// communicator and kind.
func TestContexts_AreDistinct(t *testing.T) {
	seen := map[uint32]bool{}
	for _, id := range []uint32{World, Numbered(1), Numbered(2), Finalize} {
		for i, context := range slices.Collect(Contexts(id)) {
			require.False(t, seen[context])
			seen[context] = true
			require.Equal(t, id, Communicator(context))
			for k := range end {
				require.Equal(t, int(k) == i, k.Is(context))
			}
		}
	}
	require.LessOrEqual(t, uint32(end), uint32(Kinds))
	require.Equal(t, uint32(1)<<NumberBits-1, Number(Finalize))
}
