package launcher

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/remote"
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
	j.nodes.all = []*node{{agent: j.local}}
	nodes, err := j.connector().connect(t.Context(), hosts)
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
	j.nodes.all = nodes
	j.nodes.closeIdleAgents()
	var left []string
	for _, n := range j.nodes.all {
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
		"host a: --bind-to: the list of processors is empty": func(j *Job) {
			j.BindTo.To = BindList
		},
	} {
		j, err := run(change)
		require.EqualError(t, err, want)
		require.Equal(t, 2, ExitStatus(err))
		require.Len(t, j.nodes.all, 3)
		for _, n := range j.nodes.all[1:] {
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
	p := &programs{
		apps: []App{{Ranks: 1}, {Ranks: 1, Dir: "sub"}, {Ranks: 1, Dir: "/abs"}},
		dir:  "/here", files: []string{"x", "/y", "/z"}, of: []int{0, 1, 2},
	}
	require.Equal(t, []programRequest{{Name: "x", Dir: "/here"}, {Name: "/y", Dir: "/here/sub"}, {}}, p.wantedOn(a))
	require.Equal(t, []programRequest{{}, {}, {Name: "/z", Dir: "/abs"}}, p.wantedOn(b))
	t.Setenv("PATH", "/nowhere")
	plan, err := new(planner).plan(&planRequest{Programs: []programRequest{{}, {Name: "/nosuch"},
		{Name: "/nosuch", Away: true}, {Name: "/nosuch", Away: true, There: true}, {Name: "x"},
		{Name: "x", Away: true}, {Name: "/y/x", Dir: "/nosuch"}}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"there is no /nosuch",
		"there is no /nosuch, and none on the host of weft run",
		"there is no /nosuch; --stage copies the program to each host",
		"x is not in PATH",
		"x is not in the PATH that weft's agent has there; write its path",
		"there is no folder /nosuch to start x in; create it, or name one that every host has with --wdir",
	}, plan.Problems)
	require.Equal(t, make([]string, 7), plan.Files)
	require.Equal(t, 127, ExitStatus(plan.problem("a")))
}

// The exit status says that a program cannot be found or executed only where that is so.
func TestStatusOfAHostThatCannotRunTheJob(t *testing.T) {
	for _, c := range []struct {
		program programRequest
		want    int
	}{
		{programRequest{Name: "/nosuch"}, 127},
		{programRequest{Name: "nosuch", Away: true}, 127},
		{programRequest{Name: "/"}, 126},
		{programRequest{Name: "/dev/null"}, 126},
		{programRequest{Name: "/", Dir: "/nosuch"}, 1},
	} {
		plan, err := new(planner).plan(&planRequest{Programs: []programRequest{c.program}})
		require.NoError(t, err)
		require.Equal(t, c.want, ExitStatus(plan.problem("a")), "%v", c.program)
	}
	network := &plan{Problems: []string{"no network interface that is up leads to b"}}
	require.EqualError(t, network.problem("a"), "host a: no network interface that is up leads to b")
	require.Equal(t, 1, ExitStatus(network.problem("a")))
	require.NoError(t, new(plan).problem("a"))
	require.Error(t, (&plan{ProgramStatus: 3}).check(new(planRequest)))
}

// A program that is copied to a host starts where its agent does if the host does not have the folder of weft
// run, and the user has named none.
func TestStagedProgramStartsWhereItCan(t *testing.T) {
	p := &programs{apps: []App{{}, {Dir: "sub"}}, dir: "/nosuch", files: []string{"/x", "/y"},
		hashes: []string{"h", "h"}, of: []int{0, 1}}
	n := &node{ranks: []int{0, 1}, remote: new(remote.Agent)}
	request := planRequest{Programs: p.wantedOn(n)}
	plan, err := new(planner).plan(&request)
	require.NoError(t, err)
	own, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, []string{"there is no folder /nosuch: x starts in " + own + "; --wdir names another"}, plan.Notes)
	require.Equal(t, []string{"there is no folder /nosuch/sub to start y in; create it, or name one that every " +
		"host has with --wdir"}, plan.Problems)
	require.Equal(t, []int{0}, plan.Missing)
	require.NoError(t, plan.check(&request))
	n.plan = plan
	require.Equal(t, own, p.dirOn(n, 0))
	require.Equal(t, "/nosuch/sub", p.dirOn(n, 1))
}

// A host finds its route to other hosts with ranks, of which the launcher's need not be one.
func TestPeersOfAHostHaveRanks(t *testing.T) {
	here, a, b := &node{name: "here"}, &node{name: "a", ranks: []int{0}}, &node{name: "b", ranks: []int{1}}
	require.Equal(t, []string{"b"}, (&nodes{all: []*node{here, a, b}}).peersOf(a))
	require.Empty(t, (&nodes{all: []*node{here, a}}).peersOf(a), "all ranks are on one host")
	here.ranks = []int{2}
	require.Equal(t, []string{"here", "b"}, (&nodes{all: []*node{here, a, b}}).peersOf(a))
}

// A plan that another host has made is checked before it is used.
func TestPlanThatMakesNoSense(t *testing.T) {
	request := planRequest{Ranks: 2, Programs: []programRequest{{Name: "x"}, {Name: "y", Hash: "h"}}}
	good := func() *plan {
		return &plan{Cores: [][]int{{0}, {1}}, CPUs: [][]int{{0}, {1}}, Handlers: [][]int{{2}, {3}},
			CoresPerRank: 1, Files: []string{"/x", ""}, Missing: []int{1}, Interface: "10.0.0.1/32"}
	}
	require.NoError(t, good().check(&request))
	require.NoError(t, (&plan{Files: []string{"/x", "/y"}}).check(&request))
	for want, change := range map[string]func(*plan){
		"processors for 1 ranks of 2":          func(p *plan) { p.CPUs = p.CPUs[:1] },
		"completion handlers for 0 ranks of 2": func(p *plan) { p.Handlers = [][]int{} },
		"[] for processors":                    func(p *plan) { p.Handlers[0] = nil },
		"[-1] for processors":                  func(p *plan) { p.CPUs[1] = []int{-1} },
		"[65536] for processors":               func(p *plan) { p.Cores[1] = []int{1 << 16} },
		"-1 cores for each rank":               func(p *plan) { p.CoresPerRank = -1 },
		"files for 1 programs of 2":            func(p *plan) { p.Files = p.Files[:1] },
		"folders for 1 programs of 2":          func(p *plan) { p.Dirs = []string{"/x"} },
		"program 0 is to be copied, which was": func(p *plan) { p.Missing[0] = 0 },
		"program 2 is to be copied, which was": func(p *plan) { p.Missing[0] = 2 },
		"no '/'":                               func(p *plan) { p.Interface = "eth0" },
	} {
		p := good()
		change(p)
		require.ErrorContains(t, p.check(&request), want)
	}
}

// A host whose agent repeats what it says, or is cut off, is lost, and the error names it. What may come twice
// does no harm.
func TestAgentThatGarbles(t *testing.T) {
	t.Parallel()
	names := map[string]int{}
	for _, how := range []string{"double", "cut"} {
		for n := range 9 {
			b := start(t, 2, "barrier", func(j *Job) {
				onHosts(Host{"far", 2})(j)
				j.Starter = append(j.Starter, "GARBLE="+how, "AT="+strconv.Itoa(n))
			})
			if err := <-b.done; err != nil {
				require.ErrorContains(t, err, "host far", "%s %d", how, n)
				names[how]++
			} else {
				require.Equal(t, "double", how, "frame %d", n)
			}
		}
	}
	require.Equal(t, 9, names["cut"])
	require.GreaterOrEqual(t, names["double"], 5, "Hello, Prepared, Started and AllStarted")
}
