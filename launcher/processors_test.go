package launcher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/topology"
)

// The ranks of all hosts on one machine are counted when it is decided whether ranks share processors, and
// together they take each processor equally often.
func TestHostsOfOneMachineSharePlan(t *testing.T) {
	machine, err := topology.Read()
	require.NoError(t, err)
	cores := machine.UsableCores()
	spec := Job{Apps: []App{{Program: "true"}}}
	onHosts(Host{"a", cores}, Host{"b", cores})(&spec)
	j, err := newJob(spec, new(history))
	require.NoError(t, err)
	defer j.close()
	require.NoError(t, j.prepare(t.Context()))
	require.Len(t, j.nodes.of, 2*cores)
	uses := map[int]int{}
	for _, n := range j.nodes.all[1:] {
		require.Zero(t, n.plan.CoresPerRank, "the ranks of %s would spin", n.name)
		if n.plan.CPUs == nil {
			continue // as other jobs run
		}
		require.Len(t, n.plan.CPUs, cores)
		for _, list := range n.plan.CPUs {
			uses[list[0]]++
		}
	}
	for cpu, n := range uses {
		require.Equal(t, 2, n, "ranks on processor %d", cpu)
	}
}

// Hosts are planned together if they have the same processors, and ranks.
func TestNodesByProcessors(t *testing.T) {
	names := func(list ...*node) (all [][]string) {
		for _, group := range (&nodes{all: list}).byProcessors() {
			var own []string
			for _, n := range group {
				own = append(own, n.name)
			}
			all = append(all, own)
		}
		return all
	}
	here := &node{name: "here", processors: "x"}
	a, b := &node{name: "a", processors: "x", ranks: []int{0}}, &node{name: "b", processors: "y", ranks: []int{1}}
	c, d := &node{name: "c", processors: "x", ranks: []int{2}}, &node{name: "d", ranks: []int{3}}
	e := &node{name: "e", ranks: []int{4}}
	require.Equal(t, [][]string{{"here"}, {"a", "c"}, {"b"}, {"d"}, {"e"}}, names(here, a, b, c, d, e))
}
