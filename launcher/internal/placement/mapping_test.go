package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		m     Mapping
		slots []int
		n     int
		want  []int
	}{
		{Mapping{}, []int{2, 3}, 5, []int{0, 0, 1, 1, 1}},
		{Mapping{}, []int{2, 3}, 3, []int{0, 0, 1}},
		{Mapping{}, []int{2, 3}, 7, []int{0, 0, 1, 1, 1, 0, 0}},
		{Mapping{ByNode: true}, []int{2, 3}, 5, []int{0, 1, 0, 1, 1}},
		{Mapping{PerNode: 4}, []int{4, 4}, 6, []int{0, 0, 0, 0, 1, 1}},
	} {
		of, err := c.m.Assign(c.slots, c.n)
		require.NoError(t, err)
		require.Equal(t, c.want, of)
	}
	_, err := Mapping{PerNode: 2}.Assign([]int{2, 2}, 5)
	require.EqualError(t, err, "5 ranks at 2 a host need 3 hosts, and there are 2")
}
