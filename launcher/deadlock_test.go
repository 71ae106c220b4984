package launcher

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// Ranks that have become quiet, and then answer nothing because somebody has stopped them, get no SIGQUIT: only
// the user's is passed on.
func TestReportWithoutAnswersEndsNoJob(t *testing.T) {
	errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer errs.Close()
	const stuck = time.Minute
	j, err := newJob(Job{Apps: []App{{Program: "true", Ranks: 1}}, Err: errs, Stuck: stuck}, new(history))
	require.NoError(t, err)
	defer j.close()
	now := time.Now()
	s := supervisor.New(now, supervisor.Config{Ranks: make([]supervisor.Rank, 1)})
	h := hangWatch{job: j, supervisor: s, detector: deadlock.NewDetector(1, stuck)}
	j.nodes.all = []*node{{agent: j.local, ranks: []int{0}}}
	j.nodes.locate()
	j.records = records{job: j, supervisor: s}
	untilReport := func() {
		for end := now.Add(stuck + 10*time.Second); now.Before(end); now = now.Add(100 * time.Millisecond) {
			h.tick(now)
		}
	}
	h.event(now, agent.Quiet{Rank: 0})
	untilReport()
	j.output.Flush(flushTimeout)
	text, err := os.ReadFile(errs.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "nothing has moved for 1m0s")
	require.Empty(t, s.Ready().Commands)

	h.quit(now)
	untilReport()
	require.NotEmpty(t, s.Ready().Commands, "the user's signal is passed on")
}
