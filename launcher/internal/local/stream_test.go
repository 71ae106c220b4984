package local

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A process that the rank has left behind holds the pipe: the stream ends all the same, with everything that
// was written.
func TestStreamEndsThoughThePipeStaysOpen(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	var got strings.Builder
	s := &stream{
		pipe: r, over: make(chan struct{}), flow: new(gate),
		emit: func(e agent.Event) { got.Write(e.(agent.Output).Data) },
	}
	w.WriteString("line\nrest")
	s.end()
	s.copy()
	require.Equal(t, "line\nrest", got.String())
}

// Nor does a process that keeps writing to the pipe keep the stream from ending.
func TestStreamEndsThoughThePipeIsFlooded(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	s := &stream{pipe: r, over: make(chan struct{}), flow: new(gate)}
	flood := make([]byte, 64<<10)
	// Whatever is read is followed by more.
	total := 0
	s.emit = func(e agent.Event) {
		total += len(e.(agent.Output).Data)
		w.Write(flood[:len(e.(agent.Output).Data)])
	}
	w.Write(flood)
	s.end()
	s.copy()
	w.Close()
	require.Equal(t, len(flood), total)
}

func TestInheritedLeavesOtherLaunchersOut(t *testing.T) {
	for _, name := range []string{"WEFT_CQ_CORES", "PMIX_RANK", "PMI_PORT", "OMPI_COMM_WORLD_SIZE"} {
		t.Setenv(name, "5")
	}
	t.Setenv("PMISCELLANEOUS", "stays")
	env := Inherited()
	for _, v := range env {
		for _, prefix := range []string{"WEFT_CQ_CORES=", "PMIX_", "PMI_", "OMPI_COMM_WORLD_"} {
			require.False(t, strings.HasPrefix(v, prefix), v)
		}
	}
	require.Contains(t, env, "PMISCELLANEOUS=stays")
	require.Equal(t, []string{"B=1", "A=2"}, unique([]string{"A=1", "B=1", "A=2"}))
}
