package launcher

import (
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
		"WEFT_LANES": "2", "WEFT_COLL": "allreduce:ring",
	} {
		t.Setenv(name, value)
	}
	to := agent.Rank{Env: []string{"WEFT_COLL=bcast:binomial"}}
	addSettings(&to, local.Inherited())
	require.Contains(t, to.Env, "WEFT_LANES=2")
	require.NotContains(t, to.Env, "WEFT_COLL=allreduce:ring")
	for _, v := range to.Env {
		require.NotRegexp(t, "^WEFT_(JOB|RANK|SIZE|INHERITED|CORES_PER_RANK|IFACE|SURVIVE|CQ_CORES)=", v)
	}
	t.Setenv("WEFT_JOB", "")
	require.Contains(t, local.Inherited(), "WEFT_IFACE=10.0.0.1/32", "it is the user's outside of a job")
}
