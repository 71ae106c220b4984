package launcher

import (
	"io"
	"os"
	"strings"
	"syscall"
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
	write(&sink{file: file})
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return string(text)
}

func TestSinkKeepsLinesOfDifferentRanksApart(t *testing.T) {
	a, b := &stream{label: "[0] "}, &stream{label: "[1] "}
	require.Equal(t, "[0] name? bob\n[0] x\n[1] y\n[0] z\nweft: end\n", written(t, func(s *sink) {
		s.write(a, []byte("name? "))
		s.write(a, []byte("bob\nx"))
		s.write(b, []byte("y\n"))
		s.write(a, []byte("z"))
		s.write(nil, []byte("weft: end\n"))
	}))
}

// However a stream's text is cut into pieces, it comes out as it went in.
func TestStreamPropertyNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,9}`)).Draw(t, "pieces")
		require.Equal(t, strings.Join(pieces, ""), written(t, func(s *sink) {
			st := &stream{sink: s}
			for _, p := range pieces {
				st.add([]byte(p))
			}
			st.show()
		}))
	})
}

func TestStreamShowsAPromptWithoutANewline(t *testing.T) {
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	defer outR.Close()
	defer outW.Close()
	st := &stream{sink: &sink{file: outW}, pipe: inR}
	over := make(chan struct{})
	go func() { st.copy(); close(over) }()
	inW.WriteString("name? ")
	got := make([]byte, 6)
	_, err = io.ReadFull(outR, got) // would wait for ever if the newline were needed
	require.NoError(t, err)
	require.Equal(t, "name? ", string(got))
	inW.Close()
	<-over
}

// A process that has left the rank's group holds the pipe: the stream ends all the same, with everything that was written.
func TestStreamEndsThoughThePipeStaysOpen(t *testing.T) {
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	defer inW.Close()
	require.Equal(t, "line\nrest", written(t, func(s *sink) {
		st := &stream{sink: s, pipe: inR}
		inW.WriteString("line\nrest")
		st.end()
		st.copy()
	}))
}

func TestVerdict(t *testing.T) {
	killed := func(rank int, s syscall.Signal) *Failure { return &Failure{How: Killed, Rank: rank, Signal: s} }
	exited := func(rank int) *Failure { return &Failure{How: Exited, Rank: rank, Status: 1} }
	for _, c := range []struct {
		name  string
		in    []*Failure
		cause int
	}{
		{"the first in time", []*Failure{exited(2), exited(0)}, 2},
		{"a kill explains an exit that was seen before it", []*Failure{exited(2), killed(1, syscall.SIGKILL)}, 1},
		{"an abort may follow from a kill", []*Failure{{How: Aborted, Rank: 0}, killed(1, syscall.SIGSEGV)}, 1},
		{"a broken pipe is no cause", []*Failure{killed(0, syscall.SIGPIPE), exited(3)}, 3},
		{"unless there is no other", []*Failure{killed(0, syscall.SIGPIPE)}, 0},
		{"an exit does not explain a kill", []*Failure{killed(1, syscall.SIGKILL), exited(0)}, 1},
	} {
		var v verdict
		for _, f := range c.in {
			v.add(f)
		}
		require.Equal(t, c.cause, v.best.Rank, c.name)
	}
	wait, _ := new(verdict).add(killed(0, syscall.SIGKILL))
	require.Zero(t, wait, "a kill is known at once")
	wait, _ = new(verdict).add(exited(0))
	require.Less(t, wait, time.Second)
}

func TestFailureExitStatusIsNeverThatOfSuccess(t *testing.T) {
	for status, want := range map[int]int{0: 1, 1: 1, 7: 7, 255: 255, 256: 1, 257: 1} {
		require.Equal(t, want, (&Failure{How: Aborted, Status: status}).ExitStatus())
	}
	require.Equal(t, 139, (&Failure{How: Killed, Signal: syscall.SIGSEGV}).ExitStatus())
}

func TestRankEnvironment_C1(t *testing.T) {
	app := &App{Env: []string{"A=app"}}
	env := rankEnv([]string{"A=base", "B=base"}, "id", 3, 8, &placement{}, app)
	for _, want := range []string{"A=app", "B=base", "WEFT_RANK=3", "WEFT_SIZE=8", "WEFT_LOCAL_RANK=3", "WEFT_LOCAL_SIZE=8", "PMI_RANK=3",
		"PMI_SIZE=8", "MPI_LOCALRANKID=3", "MPI_LOCALNRANKS=8", "GOMAXPROCS=2", "WEFT_CORES_PER_RANK=0"} {
		require.Contains(t, env, want)
	}
	require.NotContains(t, env, "A=base")
	require.Contains(t, rankEnv([]string{"GOMAXPROCS=1"}, "id", 0, 1, &placement{coresPerRank: 4}, app), "GOMAXPROCS=1", "what the user has set stays")
	for _, v := range env {
		require.False(t, strings.HasPrefix(v, cqCoresVariable), v)
	}
	env = rankEnv(nil, "id", 1, 2, &placement{coresPerRank: 1, handlers: [][]int{{2}, {3, 7}}}, app)
	require.Contains(t, env, cqCoresVariable+"=3,7")
	require.Contains(t, env, "GOMAXPROCS=3", "the handler has a thread of its own")
	t.Setenv(cqCoresVariable, "5")
	t.Setenv("PMIX_RANK", "5")
	t.Setenv("PMI_PORT", "h:1")
	for _, v := range inherited() {
		require.False(t, strings.HasPrefix(v, "PMIX_") || strings.HasPrefix(v, cqCoresVariable) || strings.HasPrefix(v, "PMI_PORT"), v)
	}
}
