package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// written is what a sink's file got from write.
func written(t require.TestingT, write func(*sink)) string {
	file, err := os.CreateTemp("", "sink")
	require.NoError(t, err)
	defer os.Remove(file.Name())
	defer file.Close()
	s, err := newSink("the sink", file, make(chan struct{}, 1))
	require.NoError(t, err)
	write(s)
	s.flush(patience)
	require.Zero(t, s.stop())
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return string(text)
}

func TestSinkKeepsLinesOfDifferentRanksApart(t *testing.T) {
	a, b := &lineBuffer{label: "[0] "}, &lineBuffer{label: "[1] "}
	require.Equal(t, "[0] name? bob\n[0] x\n[1] y\n[0] z\nweft: end\n", written(t, func(s *sink) {
		s.put(a, []byte("name? "))
		s.put(a, []byte("bob\nx"))
		s.put(b, []byte("y\n"))
		s.put(a, []byte("z"))
		s.put(nil, []byte("weft: end\n"))
	}))
}

// However a stream's text is cut into pieces, it comes out as it went in.
func TestLineBufferPropertyNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,9}`)).Draw(t, "pieces")
		maxLine := rapid.IntRange(1, 20).Draw(t, "longest line")
		require.Equal(t, strings.Join(pieces, ""), written(t, func(s *sink) {
			b := &lineBuffer{sink: s, maxLine: maxLine}
			for _, p := range pieces {
				b.add(time.Now(), []byte(p))
			}
			b.flush()
		}))
	})
}

// Lines up to the bound come whole, whatever comes in between; a longer one is cut.
func TestLineBuffersKeepLinesWholeUpToTheBound(t *testing.T) {
	const bound = 100
	text := written(t, func(s *sink) {
		a, b := &lineBuffer{sink: s, maxLine: bound}, &lineBuffer{sink: s, maxLine: bound}
		for _, length := range []int{bound, bound + 2} {
			for range length {
				a.add(time.Now(), []byte("a"))
				b.add(time.Now(), []byte("b\n"))
			}
			a.add(time.Now(), []byte("\n"))
		}
	})
	require.Equal(t, 1, strings.Count(text, "\n"+strings.Repeat("a", bound)+"\nb"))
	require.NotContains(t, text, strings.Repeat("a", bound+2)+"\n",
		"the longer line is cut where another's came")
}

// What the launcher tells a rank of its place: its numbers, the cores of its completion handlers, and a thread
// for each of them. It proves no more of C1 than that a rank is told; that the handlers run on those cores, and
// have the queues, is proved by TestHandler_N6_EventsComeOnItsCore and TestHandler_C1_OneDriver.
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
	env = rankEnv(nil, job, numbers{1, 2, 1, 2, 0}, &plan{CoresPerRank: 1, Handlers: [][]int{{2}, {3, 7}}}, app)
	require.Contains(t, env, cqCoresVariable+"=3,7")
	require.Contains(t, env, "GOMAXPROCS=3", "the handler has a thread of its own")
}

// The picture of a host's cores says what runs on each; cores with the same use share a row.
func TestCoreRows(t *testing.T) {
	p := &plan{
		Cores: [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8}},
		CPUs:  [][]int{{0, 4}, {1, 5}}, Handlers: [][]int{{2}, {3}},
	}
	require.Equal(t, []coreRow{
		{[]int{0}, []int{0, 4}, "rank 2"},
		{[]int{1}, []int{1, 5}, "rank 3"},
		{[]int{2}, []int{2, 6}, "completion queue of rank 2"},
		{[]int{3}, []int{3, 7}, "completion queue of rank 3"},
		{[]int{4}, []int{8}, "-"},
	}, p.coreRows([]int{2, 3}))
	p.CPUs, p.Handlers = [][]int{{0, 1, 4, 5}, {0, 1, 4, 5}}, nil
	require.Equal(t, []coreRow{
		{[]int{0, 1}, []int{0, 1, 4, 5}, "ranks 2-3"},
		{[]int{2, 3, 4}, []int{2, 3, 6, 7, 8}, "-"},
	}, p.coreRows([]int{2, 3}))
}

// A name that somebody else has given does nothing to the terminal that a notice is shown on.
func TestNoticesHaveNoControlCharacters(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer file.Close()
	o, err := newOutput(file, file)
	require.NoError(t, err)
	o.notice("rank 0 on %s ended\n\tso", "host\x1b[2J\r")
	o.flush(patience)
	o.close()
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Equal(t, "weft: rank 0 on host\\x1b[2J\\r ended\n\tso\n", string(text))
}
