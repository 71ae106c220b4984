package launcher

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The picture says which core the completion handler of each endpoint of a rank has.
func TestDrawNode_C1_HandlersOfEndpoints(t *testing.T) {
	p := &plan{Cores: [][]int{{0}, {1}, {2}, {3}}, CPUs: [][]int{{0}}, Handlers: [][]int{{2, 3}}, Endpoints: 3}
	var text strings.Builder
	display{programs: &programs{}}.drawNode(&text, &node{name: "a", ranks: []int{5}, plan: p})
	require.Contains(t, text.String(), "\n  rank 5: completion handlers of endpoints 0 on 2, 1 on 3, 2 on 2\n")
	text.Reset()
	p.Handlers = nil
	display{programs: &programs{}}.drawNode(&text, &node{name: "a", ranks: []int{5}, plan: p})
	require.Contains(t, text.String(), "\n  each rank has 3 endpoints\n")
}

// The picture of a host's cores says what runs on each; cores with the same use share a row.
func TestCoreRows(t *testing.T) {
	p := &plan{
		Cores: [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8}},
		CPUs:  [][]int{{0, 4}, {1, 5}}, Handlers: [][]int{{2}, {3}},
	}
	require.Equal(t, []coreRow{
		{[]int{0}, []int{0, 4}, "rank 2"},
		{[]int{1}, []int{1, 5}, "rank 3"},
		{[]int{2}, []int{2, 6}, "completion queue of rank 2"},
		{[]int{3}, []int{3, 7}, "completion queue of rank 3"},
		{[]int{4}, []int{8}, "-"},
	}, p.coreRows([]int{2, 3}))
	p.CPUs, p.Handlers = [][]int{{0, 1, 4, 5}, {0, 1, 4, 5}}, nil
	require.Equal(t, []coreRow{
		{[]int{0, 1}, []int{0, 1, 4, 5}, "ranks 2-3"},
		{[]int{2, 3, 4}, []int{2, 3, 6, 7, 8}, "-"},
	}, p.coreRows([]int{2, 3}))
}
