package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Collectives of ranks on several hosts have algorithms of two levels, and give the right results: the
// launcher tells the ranks who shares a host.
func TestHosts_CollectivesInTwoLevels(t *testing.T) {
	c := newCluster(t, 3)
	for _, name := range []string{"allreduce", "bcast", "reduce"} {
		j := c.start(3, "-x", "WEFT_COLL=explain", c.dir+"/weft", "bench", name, "-m", "8:64K", "-i", "20",
			"-c")
		require.Zero(t, j.wait(), j.err.String())
		require.NotContains(t, j.out.String(), "Fail")
		call := strings.ToUpper(name[:1]) + name[1:] + " on world, 9 ranks, 8 bytes: two-level, chosen of"
		require.Contains(t, j.err.String(), call)
		require.Regexp(t, `predicted .* over TCP between hosts`, j.err.String())
	}
}
