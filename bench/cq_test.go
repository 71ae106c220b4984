package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/launchertest"
)

var cqHandlers = plain("cq", "cq", sized(0, -1, 20))

// TestCQ_C1_HandlersOfEachLayout: a row for each endpoint, whose handler is on the core of the layout, has had
// events, has made passes, and has found completions.
func TestCQ_C1_HandlersOfEachLayout(t *testing.T) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	cores = cores[:min(2, len(cores))]
	r := launchertest.Run(t, launchertest.Ranks(2, cqHandlers, "WEFT_CQ_CORES="+topology.FormatCPUList(cores)))
	require.NoError(t, r.Failure, r.Err)
	rows := strings.Split(strings.TrimSpace(r.Out), "\n")[3:]
	for _, l := range layouts {
		if l.threads > len(cores) {
			continue
		}
		for endpoint := range l.endpoints {
			require.NotEmpty(t, rows, r.Out)
			f := strings.Fields(rows[0])
			rows = rows[1:]
			require.Len(t, f, 13, r.Out)
			if endpoint == 0 {
				bulk := "0"
				if l.bulk {
					bulk = "1"
				}
				require.Equal(t, []string{fmt.Sprint(l.endpoints), fmt.Sprint(l.threads), bulk}, f[:3], r.Out)
				require.Equal(t, l.stream, f[6] != "0.00", r.Out)
			}
			core := cores[0]
			if endpoint > 0 {
				core = cores[l.threads-1]
			}
			require.Equal(t, []string{fmt.Sprint(endpoint), fmt.Sprint(core)}, f[7:9], r.Out)
			for _, i := range []int{9, 11, 12} { // it need not have slept
				require.NotEqual(t, "0", f[i], r.Out)
			}
		}
	}
	require.Empty(t, rows, r.Out)
}
