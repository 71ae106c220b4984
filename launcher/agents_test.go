package launcher

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// onHosts has the ranks of a job run behind agents, which are processes of the test's own binary.
func onHosts(hosts ...Host) func(*Job) {
	return func(j *Job) {
		j.Hosts = hosts
		j.Starter = []string{"env", modeVariable + "=agent", "HOST={host}"}
		j.AgentPath, _ = absolute(os.Args[0])
	}
}

func TestJobOnSeveralHosts(t *testing.T) {
	b := start(t, 4, "barrier", onHosts(Host{"a", 2}, Host{"b", 2}))
	require.NoError(t, <-b.done)
}

// Where hosts are more than each is to start, agents start those of others. One without ranks stays if others
// are reached through it.
func TestJobOnATreeOfHosts(t *testing.T) {
	hosts := []Host{{"a", 2}, {"b", 1}, {"c", 2}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}}
	b := start(t, 7, "barrier", func(j *Job) {
		onHosts(hosts...)(j)
		j.FanOut = 2
	})
	require.NoError(t, <-b.done)

	spec := Job{Apps: []App{{Program: "true", Ranks: 3}}, FanOut: 2}
	onHosts(hosts...)(&spec)
	j, err := newJob(spec, new(history))
	require.NoError(t, err)
	defer j.close()
	var via []string
	hosts = j.hostsToAsk()
	nodes, err := j.connect(t.Context(), hosts)
	require.NoError(t, err)
	for _, n := range nodes {
		name := n.name
		for ; n.via != nil; n = n.via {
			name += "<" + n.via.name
		}
		via = append(via, name)
	}
	require.Equal(t, []string{"a", "b", "c<a", "d<a", "e<b", "f<b", "g<c<a"}, via)
	nodes[4].ranks = []int{0}
	nodes[6].ranks = []int{1}
	j.closeIdleAgents()
	var left []string
	for _, n := range j.nodes {
		left = append(left, n.name)
	}
	require.Equal(t, []string{"a", "b", "c", "e", "g"}, left)
}

// An error after the agents have come up ends them, and leaves the caller's programs as they were.
func TestAgentsEndWithARequestThatMakesNoSense(t *testing.T) {
	apps := []App{{Program: "true"}}
	run := func(change func(*Job)) (*job, error) {
		spec := Job{Apps: apps}
		onHosts(Host{"a", 1}, Host{"b", 1})(&spec)
		change(&spec)
		j, err := newJob(spec, new(history))
		require.NoError(t, err)
		defer j.close()
		return j, j.prepare(t.Context())
	}
	for want, change := range map[string]func(*Job){
		"5 ranks at 2 a host need 3 hosts, and there are 2": func(j *Job) {
			j.Apps = []App{{Program: "true", Ranks: 5}}
			j.MapBy.PerNode = 2
		},
		"standard input for rank 5: the ranks are 0 to 1": func(j *Job) { j.Stdin = 5 },
	} {
		j, err := run(change)
		require.EqualError(t, err, want)
		require.Equal(t, 2, ExitStatus(err))
		require.Len(t, j.nodes, 3)
		for _, n := range j.nodes[1:] {
			require.ErrorContains(t, n.remote.Prepare(t.Context(), nil, nil), "the connection to its agent has ended")
		}
	}
	_, err := run(func(*Job) {})
	require.NoError(t, err)
	require.Zero(t, apps[0].Ranks)
}

// A host is asked only for the programs of its own ranks.
func TestProgramsOfAHost(t *testing.T) {
	a, b := &node{ranks: []int{0, 1}}, &node{ranks: []int{2}}
	j := &job{
		Job: Job{Apps: []App{{Ranks: 1}, {Ranks: 1, Dir: "sub"}, {Ranks: 1, Dir: "/abs"}}},
		dir: "/here", files: []string{"x", "/y", "/z"}, programOf: []int{0, 1, 2},
	}
	require.Equal(t, []programRequest{{Name: "x", Dir: "/here"}, {Name: "/y", Dir: "/here/sub"}, {}}, j.programsOf(a))
	require.Equal(t, []programRequest{{}, {}, {Name: "/z", Dir: "/abs"}}, j.programsOf(b))
	plan, err := new(planner).plan(&planRequest{Programs: []programRequest{{}, {Name: "/nosuch"}}})
	require.NoError(t, err)
	require.Equal(t, []string{"there is no /nosuch"}, plan.Problems)
	require.Equal(t, []string{"", ""}, plan.Files)
}
