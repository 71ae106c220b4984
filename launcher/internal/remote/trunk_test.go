package remote

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// farTrunk stands for the starter of several agents: each gets the input, and lines of their output mix.
func farTrunk(n int) {
	var inputs []io.Writer
	done := make(chan struct{})
	for i := range n {
		r, w := io.Pipe()
		inputs = append(inputs, w)
		go func() {
			in, out := Branch(r, os.Stdout, i)
			farSide(in, out)
			go io.Copy(io.Discard, r)
			done <- struct{}{}
		}()
	}
	go io.Copy(io.MultiWriter(inputs...), os.Stdin)
	for range n {
		<-done
	}
}

// One starter serves several agents, whose streams do not mix.
func TestTrunk(t *testing.T) {
	const n = 3
	trunk, err := StartTrunk([]string{os.Args[0], "far", strconv.Itoa(n)}, n)
	require.NoError(t, err)
	var agents []*Agent
	for i := range n {
		a, err := trunk.Connect(t.Context(), i, "far", "job")
		require.NoError(t, err)
		agents = append(agents, a)
	}
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
	<-trunk.process.waited
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
