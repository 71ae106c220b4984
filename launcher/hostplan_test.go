package launcher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/launcher/internal/placement"
)

func TestPlanTellsWhyRanksAreNotBound(t *testing.T) {
	var p plan
	p.take(placement.Placement{Unbound: "other weft jobs use 2 of 4 cores"})
	require.Equal(t, "not bound (other weft jobs use 2 of 4 cores)", p.boundTo(0))
	require.Equal(t, "no completion handler", p.handledOn(0))
	p.take(placement.Placement{CPUs: [][]int{{1}}})
	require.Equal(t, "bound to processor 1", p.boundTo(0))
}

// All ranks of a job have as many endpoints as the ranks of the host have cores where they have the fewest,
// unless the user says it, and no rank has a completion handler for which there is no endpoint.
func TestEndpointsOfAllHosts(t *testing.T) {
	for _, c := range []struct {
		option int
		text   string // of the variable
		cores  []int  // of each rank, by host; -1 for a host without ranks
		want   int
	}{
		{cores: []int{1}, want: 1}, {cores: []int{0}, want: 1}, {cores: []int{4}, want: 4},
		{cores: []int{16, 16}, want: 8}, {cores: []int{4, 2, 8}, want: 2}, {cores: []int{4, 0}, want: 1},
		{cores: []int{4, -1}, want: 4}, {text: "auto", cores: []int{2}, want: 2},
		{text: "3", cores: []int{4, 1}, want: 3}, {option: 5, text: "3", cores: []int{1}, want: 5},
		{text: "9", cores: []int{2}, want: 2}, // which the ranks refuse
	} {
		t.Setenv(setting.Endpoints.Name, c.text)
		j := &job{Job: Job{Endpoints: c.option}}
		for _, cores := range c.cores {
			n := &node{plan: &plan{CoresPerRank: max(cores, 0)}}
			if cores >= 0 {
				n.ranks, n.plan.Handlers = []int{0}, [][]int{{1, 2, 3}}
			}
			j.nodes.all = append(j.nodes.all, n)
		}
		j.settleEndpoints()
		for i, n := range j.nodes.all {
			require.Equal(t, c.want, n.plan.Endpoints, "%v, host %d", c, i)
			for _, handlers := range n.plan.Handlers {
				require.Equal(t, []int{1, 2, 3}[:min(3, c.want)], handlers, "%v", c)
			}
		}
	}
}
