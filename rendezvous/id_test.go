package rendezvous

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestID_HasTheIndexAndTheGeneration on the edges of both; no two of them are the same, and FIN tells those
// of one index apart by the lower bits of the generation.
func TestID_HasTheIndexAndTheGeneration(t *testing.T) {
	seen := map[uint64]bool{}
	for _, index := range []uint32{0, 1, maxFINIndex, maxFINIndex + 1, 1<<32 - 1} {
		for _, generation := range []uint32{0, 1, 1<<11 - 1, 1 << 11, maxGeneration} {
			for _, end := range []endKind{endATS, endFIN, endWord} {
				e := pendingSend{generation: generation, end: end}
				id := e.id(index)
				require.LessOrEqual(t, id, uint64(idBits))
				require.Equal(t, index, indexOf(id))
				require.False(t, seen[id], "%#x", id)
				seen[id] = true
				require.Equal(t, end == endATS, id&endsWithATS != 0)
				require.Equal(t, end == endWord, EndsInWord(id))
				f := finOf(id)
				require.Equal(t, f, parseFIN(f.imm()))
				require.False(t, IsGrantEnd(f.imm()))
				require.Equal(t, index&maxFINIndex|generation<<20&immediateBits, f.id)
			}
		}
	}
}
