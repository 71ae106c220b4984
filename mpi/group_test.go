package mpi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func groupOf(world ...int) *Group { return &Group{world: world, self: 3} }

func TestGroup(t *testing.T) {
	g := groupOf(5, 3, 1, 0)
	require.Equal(t, 4, g.Size())
	require.Equal(t, 1, g.Rank())
	some, err := g.Incl(3, 1)
	require.NoError(t, err)
	require.Equal(t, groupOf(0, 3), some)
	others, err := g.Excl(3, 1)
	require.NoError(t, err)
	require.Equal(t, groupOf(5, 1), others)
	require.Equal(t, Undefined, others.Rank())
	require.Equal(t, groupOf(5, 1, 0, 3), others.Union(some))
	require.Equal(t, groupOf(3, 0), g.Intersection(some))
	require.Equal(t, groupOf(5, 1), g.Difference(some))
	require.Equal(t, []int{1, Undefined, 0, ProcNull, Undefined},
		g.Translate([]int{1, 0, 3, ProcNull, 4}, some))
	require.Equal(t, Identical, g.Compare(groupOf(5, 3, 1, 0)))
	require.Equal(t, Similar, g.Compare(groupOf(0, 1, 3, 5)))
	require.Equal(t, Unequal, g.Compare(some))
	var none *Group
	require.Equal(t, 0, none.Size())
	require.Equal(t, Undefined, none.Rank())
	require.Equal(t, g, none.Union(g))
	require.Equal(t, 0, g.Intersection(none).Size())
	for _, wrong := range [][]int{{4}, {-1}, {1, 1}} {
		_, err := g.Incl(wrong...)
		require.ErrorIs(t, err, ErrRank)
		_, err = g.Excl(wrong...)
		require.ErrorIs(t, err, ErrRank)
	}
}

func TestDimsCreate(t *testing.T) {
	dims := []int{0, 3, 0}
	require.NoError(t, DimsCreate(6, dims))
	require.Equal(t, []int{2, 3, 1}, dims)
	require.ErrorIs(t, DimsCreate(7, []int{0, 2}), ErrArg)
}
