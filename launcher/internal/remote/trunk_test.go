package remote

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// farTrunk stands for the starter of several agents: each task gets the input, and lines of their output mix. As
// srun may, it ends all of them when one ends before the input does.
func farTrunk(n int) {
	var inputs []io.Writer
	done := make(chan struct{})
	inputEnded := make(chan struct{})
	for i := range n {
		r, w := io.Pipe()
		inputs = append(inputs, w)
		go func() {
			Hold(r, os.Stdout, i, []string{os.Args[0], "far"}, nil)
			select {
			case <-inputEnded:
			default:
				fmt.Fprintf(os.Stderr, "starter: error: task %d has ended\nstarter: error: the others are ended\n", i)
				os.Exit(1)
			}
			done <- struct{}{}
		}()
	}
	go func() {
		io.Copy(io.MultiWriter(inputs...), os.Stdin)
		close(inputEnded)
		for _, w := range inputs {
			w.(*io.PipeWriter).Close()
		}
	}()
	for range n {
		<-done
	}
}

// connectTrunk starts a trunk of n agents.
func connectTrunk(t *testing.T, n int) (*Trunk, []*Agent) {
	trunk, err := StartTrunk([]string{os.Args[0], "far", strconv.Itoa(n)}, n)
	require.NoError(t, err)
	var agents []*Agent
	for i := range n {
		a, err := trunk.Connect(t.Context(), i, fmt.Sprint("far", i), "job")
		require.NoError(t, err)
		agents = append(agents, a)
	}
	return trunk, agents
}

// One starter serves several agents, whose streams do not mix.
func TestTrunk(t *testing.T) {
	trunk, agents := connectTrunk(t, 3)
	text := bytes.Repeat([]byte("text "), 1000)
	for i, a := range agents {
		a.Do(agent.Start{Ranks: []agent.Rank{{ID: i}}})
		a.Do(agent.Input{Rank: i, Data: text})
	}
	for i, a := range agents {
		require.Equal(t, agent.Started{Rank: i, PID: 1000 + i}, next(t, a))
		require.Equal(t, agent.AllStarted{}, next(t, a))
		require.Equal(t, agent.Output{Rank: i, Data: text}, next(t, a))
	}
	for _, a := range agents {
		a.Close()
	}
	trunk.process.waitForLastWords()
	require.Empty(t, trunk.process.stderr.last(), "the starter has ended before its input")
}

// startOneEach has each agent start the rank of its number.
func startOneEach(t *testing.T, agents []*Agent) {
	for i, a := range agents {
		a.Do(agent.Start{Ranks: []agent.Rank{{ID: i}}})
		require.Equal(t, agent.Started{Rank: i, PID: 1000 + i}, next(t, a))
		require.Equal(t, agent.AllStarted{}, next(t, a))
	}
}

// An agent that ends, or is closed early, is the only one: the starter and the others go on.
func TestTrunk_AnAgentEnds(t *testing.T) {
	trunk, agents := connectTrunk(t, 4)
	startOneEach(t, agents)
	agents[1].Do(agent.Input{Rank: 1, Data: []byte("die")})
	require.Equal(t, agent.Lost{Ranks: []int{1}, Reason: "host far1 is lost: the connection to its agent has ended"},
		next(t, agents[1]))
	agents[2].Close()
	for _, i := range []int{0, 3} {
		agents[i].Do(agent.Input{Rank: i, Data: []byte("text")})
		require.Equal(t, agent.Output{Rank: i, Data: []byte("text")}, next(t, agents[i]))
	}
	for _, i := range []int{0, 1, 3} {
		agents[i].Close()
	}
	trunk.process.waitForLastWords()
	require.Empty(t, trunk.process.stderr.last(), "the starter has ended before its input")
}

// A starter that ends while its agents run names no host, and its first error is the reason.
func TestTrunk_TheStarterEnds(t *testing.T) {
	trunk, agents := connectTrunk(t, 2)
	startOneEach(t, agents)
	trunk.process.stderr.Write([]byte("a word\nstarter: error: task 1 has ended\nstarter: error: task 0 has ended\n"))
	require.NoError(t, trunk.process.cmd.Process.Kill())
	for i, a := range agents {
		require.Equal(t, agent.Lost{Ranks: []int{i}, OfAll: true, Reason: "all hosts are lost: " + os.Args[0] +
			" has ended (starter: error: task 1 has ended)"}, next(t, a))
		a.Close()
	}
}

// The end of the starter is that of all its agents.
func TestTrunkThatEnds(t *testing.T) {
	trunk, err := StartTrunk([]string{"sh", "-c", "echo no nodes >&2"}, 2)
	require.NoError(t, err)
	for i := range 2 {
		_, err := trunk.Connect(t.Context(), i, "far", "job")
		require.ErrorContains(t, err, "host far: the connection to its agent has ended (sh: no nodes)")
	}
}

// When the starter takes its input again, the streams of all agents go on, also beside some that are over.
func TestBranch_AllGoOnWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trunk := &Trunk{out: newQueue()}
		trunk.out.put(make([]byte, maxUnsent+1))
		var written, refused atomic.Int32
		for i := range 9 {
			b := &branch{t: trunk, number: i}
			b.closed.Store(i > 0)
			go func() {
				if _, err := b.Write([]byte("text")); err == nil {
					written.Add(1)
				} else {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		go trunk.out.run(io.Discard)
		synctest.Wait()
		require.EqualValues(t, 1, written.Load())
		require.EqualValues(t, 8, refused.Load())
		trunk.out.close()
	})
}

func TestParts(t *testing.T) {
	data := bytes.Repeat([]byte{0, '\n', 255}, 1000)
	text := appendParts([]byte("banner\n"), 1, data)
	text = append(text, strings.Repeat("x", 2*maxPart)+"\nno newline: "...)
	text = appendParts(text, 2, nil)
	for line := range bytes.Lines(appendParts(nil, 65535, data)) {
		require.LessOrEqual(t, len(line), 1024)
	}
	got := make(map[int][]byte)
	require.ErrorIs(t, eachPart(bytes.NewReader(text), func(n int, part []byte) {
		got[n] = append(got[n], part...)
	}), io.EOF)
	require.Equal(t, map[int][]byte{1: data, 2: nil}, got)
}

// No line makes the parser panic, and what was written is read as it was.
func FuzzParsePart(f *testing.F) {
	f.Add([]byte("weft-part 3 AAAA\n"))
	f.Add([]byte("weft-part -1 ="))
	f.Fuzz(func(t *testing.T, line []byte) {
		number, data, ok := parsePart(line)
		if !ok || len(data) > lineData {
			return
		}
		again, same, ok := parsePart(appendParts(nil, number, data))
		require.True(t, ok)
		require.Equal(t, number, again)
		require.True(t, bytes.Equal(data, same))
	})
}
