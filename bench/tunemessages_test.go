package bench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
)

// reportOf is a report of messages: their times and the parts that were announced, in per cent.
func reportOf(fabric string, figures ...float64) *Report {
	r := &Report{Schema: Schema, Benchmark: messageTimes.Name, Fabrics: []string{fabric}}
	for i := 0; i < len(figures); i += 3 {
		r.Rows = append(r.Rows, map[string]any{"size": figures[i], "latency": figures[i+1],
			"announced": figures[i+2]})
	}
	return r
}

func TestTuneMessages_TheBestWay(t *testing.T) {
	var out strings.Builder
	x := &tuner{fabric: "shm", out: &table{out: &out}}
	x.All = true
	const none, some, all = 0, 50, 100
	points, err := x.pointsOf([]*Report{
		reportOf("shm", 8, 0.2, none, 8192, 3, none, 32768, 3.1, all, 65536, 9, some),
		reportOf("shm", 8, 0.1, none, 8192, 3, none, 32768, 3, none, 65536, 6, none),
		reportOf("shm", 8, 0.1, none, 8192, 1, all, 32768, 3, all, 65536, 5, all),
		reportOf("shm", 8, 0.2, none, 8192, 3, 1, 32768, 3.1, 99, 65536, 9, some),
		reportOf("shm", 8, 0.2, none, 8192, 3, none, 32768, 3, none, 65536, 6, none),
		reportOf("shm", 8, 0.1, none, 8192, 1, all, 32768, 3, all, 65536, 5, all),
	})
	require.NoError(t, err)
	type result struct {
		bytes        int
		chosen, best string
		gain         float64
	}
	var got []result
	for _, p := range points {
		require.Equal(t, "Send", p.name)
		got = append(got, result{p.bytes, p.chosen, p.best, p.gain()})
	}
	require.Equal(t, []result{
		{8, "ring", "ring", 1}, // a forced job that goes the same way has figures of the choice
		{8192, "ring", "one copy", 3},
		{32768, "one copy", "one copy", 1}, // within 10 %
		{65536, "mixed", "both ends", 1.8},
	}, got)
	require.Contains(t, out.String(), "\n# WEFT_COPY_COSTS=1ns,1ns,1s forces the better way of messages of 8192, "+
		"65536 bytes\n")
	require.NotContains(t, out.String(), "1s,1ns,1ns")
	require.Contains(t, out.String(), "\n#Send                     2      8192  one copy                   1.00\n")

	_, err = x.pointsOf([]*Report{reportOf("shm", 8, 1, 0, 16, 1, 0), reportOf("shm", 8, 1, 0)})
	require.ErrorContains(t, err, "not complete")
}

// Jobs take turns; none is for messages if only collectives are asked for.
func TestTuneMessages_Jobs(t *testing.T) {
	o := DefaultTune
	jobs := o.MessageJobs("auto")
	require.Len(t, jobs, 3*tuneRounds)
	require.Equal(t, jobs[:3], jobs[3:6])
	require.Equal(t, []map[string]string{nil, {"WEFT_EAGER_MAX": "1G"}, {"WEFT_EAGER_MAX": "1"}},
		o.MessageJobs("tcp")[:3])
	o.Collectives = []string{"Bcast"}
	require.Empty(t, o.MessageJobs("auto"))
	require.Zero(t, o.messageLimit())
	o.Collectives = []string{"Send"}
	require.Len(t, o.MessageJobs("auto"), 3*tuneRounds)
	require.Equal(t, o.Limit, o.messageLimit())
}

var messagesBody = launchertest.Body("messages", func() error {
	o := briefly("")
	o.Min, o.MaxMessage = 4096, 64<<10
	if o.Report = os.Getenv("WEFT_TEST_REPORT"); o.Report == "" {
		o.Collectives = []string{"Send", "Barrier"}
		o.Beside = strings.Split(os.Getenv("WEFT_TEST_BESIDE"), ",")
	}
	return Tune(context.Background(), o, Invocation{}, os.Stdout)
})

// Jobs under the settings of each way go that way at every size, which a receiver that does not wait on a busy
// machine may prevent in some runs; rank 0 of the last job reads their reports.
func TestTuneMessages_ForcedWays(t *testing.T) {
	launchertest.OnFabrics(t, func(t *testing.T, fabric string) {
		_, name, _ := strings.Cut(fabric, "=")
		o, files := DefaultTune, []string(nil)
		for i, settings := range o.MessageJobs(name)[:3] {
			file := filepath.Join(t.TempDir(), "report.json")
			env := []string{"WEFT_LOG=error", "WEFT_CORES_PER_RANK=1", fabric, "WEFT_TEST_REPORT=" + file}
			for name, value := range settings {
				env = append(env, name+"="+value)
			}
			const runs = 10
			for run := range runs {
				launchertest.Succeed(t, 2, messagesBody, env...)
				var r Report
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &r))
				require.Len(t, r.Rows, 5)
				forced := true
				for row := range r.Rows {
					n, took, announced, err := r.message(row)
					require.NoError(t, err)
					require.Equal(t, 4096<<row, n)
					require.Positive(t, took)
					if i > 0 {
						want := wayName(name, messageWays(name)[i-1].announced, n)
						forced = forced && wayName(r.Fabrics[0], announced, n) == want
					}
				}
				if forced {
					break
				}
				require.Less(t, run, runs-1, "%v: %v", settings, r.Rows)
			}
			files = append(files, file)
		}
		r := launchertest.Launch(t, 2, messagesBody, "WEFT_LOG=error", fabric, "WEFT_TEST_BESIDE="+
			strings.Join(files, ","))
		require.NoError(t, r.Failure, r.Err)
		require.Equal(t, 5, strings.Count(r.Out, "\nSend "), r.Out)
		require.Contains(t, r.Out, "of 6 points")
	})
}
