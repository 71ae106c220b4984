package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAssign(t *testing.T) {
	slots := []int{2, 3}
	for _, c := range []struct {
		m    Mapping
		n    int
		want []int
		over bool
	}{
		{Mapping{}, 0, []int{0, 0, 1, 1, 1}, false},
		{Mapping{}, 3, []int{0, 0, 1}, false},
		{Mapping{}, 7, []int{0, 0, 1, 1, 1, 0, 0}, true},
		{Mapping{ByNode: true}, 5, []int{0, 1, 0, 1, 1}, false},
		{Mapping{PerNode: 1}, 0, []int{0, 1}, false},
		{Mapping{PerNode: 4}, 6, []int{0, 0, 0, 0, 1, 1}, false},
	} {
		of, over, err := c.m.Assign(slots, c.n)
		require.NoError(t, err)
		require.Equal(t, c.want, of)
		require.Equal(t, c.over, over)
	}
	_, _, err := Mapping{PerNode: 2}.Assign(slots, 5)
	require.EqualError(t, err, "5 ranks at 2 a host need 3 hosts, and there are 2")
}
