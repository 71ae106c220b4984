package launcher

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/local"
)

// A job within a job does not hand on what the outer launcher has told its ranks.
func TestSettingsOfAJobWithinAJob(t *testing.T) {
	for name, value := range map[string]string{
		"WEFT_JOB": "outer", "WEFT_RANK": "3", "WEFT_SIZE": "4", "WEFT_INHERITED": "pmi=20:1:2", "PMI_FD": "20",
		"WEFT_CORES_PER_RANK": "2", "WEFT_IFACE": "10.0.0.1/32", "WEFT_SURVIVE": "1", "WEFT_CQ_CORES": "1",
		"WEFT_ENDPOINTS": "3",
		"WEFT_LANES":     "2", "WEFT_COLL": "allreduce:ring",
	} {
		t.Setenv(name, value)
	}
	to := agent.Rank{Env: []string{"WEFT_COLL=bcast:binomial"}}
	addSettings(&to, local.Inherited())
	require.Contains(t, to.Env, "WEFT_LANES=2")
	require.NotContains(t, to.Env, "WEFT_COLL=allreduce:ring")
	for _, v := range to.Env {
		require.NotRegexp(t, "^WEFT_(JOB|RANK|SIZE|INHERITED|CORES_PER_RANK|ENDPOINTS|IFACE|SURVIVE|CQ_CORES)=", v)
	}
	j := &job{}
	require.Zero(t, j.wantedEndpoints(), "the plan is made for the settings that the ranks get")
	t.Setenv("WEFT_JOB", "")
	require.Equal(t, 3, j.wantedEndpoints())
	require.Contains(t, local.Inherited(), "WEFT_IFACE=10.0.0.1/32", "it is the user's outside of a job")
}

// What the launcher tells a rank of its place: its numbers, the cores of its completion handlers, as many as it
// has endpoints, and a thread for each of them. That the rank's endpoints have their queues there is proved by
// TestEndpoint_C1_N3_N4_N7_N8_CountersOfEveryHandler.
func TestRankEnvironment_C1(t *testing.T) {
	app := &App{Env: []string{"A=app"}}
	job := &Job{Env: []string{"A=base", "B=base"}}
	env := rankEnv(nil, job, numbers{3, 8, 3, 8, 2}, &plan{}, app)
	for _, want := range []string{"A=app", "B=base", "WEFT_RANK=3", "WEFT_SIZE=8", "WEFT_LOCAL_RANK=3",
		"WEFT_LOCAL_SIZE=8", "PMI_RANK=3", "PMI_SIZE=8", "MPI_LOCALRANKID=3", "MPI_LOCALNRANKS=8",
		"GOMAXPROCS=2", "WEFT_RESTARTED=2",
		"WEFT_CORES_PER_RANK=0"} {
		require.Contains(t, env, want)
	}
	for _, v := range env {
		require.False(t, strings.HasPrefix(v, cqCoresVariable), v)
	}
	for _, v := range rankEnv([]string{"GOMAXPROCS=1"}, job, numbers{0, 1, 0, 1, 0}, &plan{CoresPerRank: 4},
		app) {
		require.False(t, strings.HasPrefix(v, "GOMAXPROCS="), "what the user has set stays")
	}
	require.NotContains(t, env, "WEFT_ENDPOINTS=2")
	job.Endpoints = 2
	env = rankEnv(nil, job, numbers{1, 2, 1, 2, 0}, &plan{CoresPerRank: 1, Endpoints: 2,
		Handlers: [][]int{{2, 5}, {3, 7}}}, app)
	require.Contains(t, env, cqCoresVariable+"=3,7")
	require.Contains(t, env, "WEFT_ENDPOINTS=2", "each of the cores has an endpoint")
	require.Contains(t, env, "GOMAXPROCS=4", "each handler has a thread of its own")
	job.Endpoints = EndpointsAuto
	require.Contains(t, rankEnv(nil, job, numbers{1, 2, 1, 2, 0}, &plan{}, app), "WEFT_ENDPOINTS=auto")
}
