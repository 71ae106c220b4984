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

// Reports name the endpoint of a communicator where it is not the world's, and once.
func TestNamed(t *testing.T) {
	first, third := Numbered(7), OnEndpoint(2, 7)
	for _, c := range []struct {
		name string
		id   uint32
		want string
	}{
		{"world", World, "world"}, {"rows", first, "rows"}, {"", first, "communicator 7"}, {"", Finalize, "communicator 536870911"},
		{"rows", third, "rows@2"}, {"", third, "communicator 7@2"}, {"rows@2", third, "rows@2"}, {"rows@1", third, "rows@1@2"},
	} {
		require.Equal(t, c.want, Named(c.name, c.id))
	}
	require.EqualValues(t, 7, Local(Collective.In(third)))
}
