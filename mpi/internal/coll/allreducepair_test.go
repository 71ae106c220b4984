package coll

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllreducePair: a long Allreduce of two ranks goes in blocks, of which each round sends at most one to be
// combined and one that is.
func TestAllreducePair(t *testing.T) {
	const elem = 8
	for _, count := range []int{1, 2, pairBlock / elem, pairBlock/elem + 1, 3*pairBlock/elem + 7} {
		blocks := (count*elem + pairBlock - 1) / pairBlock
		for rank := range 2 {
			var s Schedule
			allreducePair(&s, &Call{Rank: rank, Size: 2, Count: count, ElemSize: elem})
			require.Equal(t, blocks+1, s.Rounds(), "%d elements", count)
			sent := 0
			for i := range s.Rounds() {
				inRound := 0
				for _, step := range s.Round(i) {
					if step.Kind == Send {
						require.LessOrEqual(t, step.Src.Len, pairBlock/2)
						sent, inRound = sent+step.Src.Len, inRound+1
					}
				}
				require.LessOrEqual(t, inRound, 2)
			}
			require.Equal(t, count*elem, sent, "every element goes once, combined or not")
		}
	}
}

// TestAllreducePairCopiesNothing: a rank whose vector may be the operator's right operand receives into its
// result.
func TestAllreducePairCopiesNothing(t *testing.T) {
	for rank := range 2 {
		s := Schedule{}
		allreducePair(&s, &Call{Rank: rank, Size: 2, Count: pairBlock, ElemSize: 2, Commutative: true,
			OwnRight: true})
		require.Zero(t, s.Scratch)
		for i := range s.Rounds() {
			for _, step := range s.Round(i) {
				require.NotEqual(t, Copy, step.Kind)
			}
		}
	}
}

// TestAllreduceOfTwoRanksOverLoopback goes in one exchange up to the length from which halves pay, and then in
// blocks.
func TestAllreduceOfTwoRanksOverLoopback(t *testing.T) {
	for bytes, want := range map[int]string{256 << 10: "recursive-doubling", 512 << 10: "recursive-doubling",
		1 << 20: "rabenseifner", 4 << 20: "rabenseifner"} {
		c := Call{Operation: OpAllreduce, Size: 2, Count: bytes / 4, ElemSize: 4, Commutative: true,
			Fabric: Loopback}
		i, _ := operations[OpAllreduce].cheapest(&c)
		require.Equal(t, want, operations[OpAllreduce].algorithms[i].name, "%d bytes", bytes)
	}
}
