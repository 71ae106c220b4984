package launcher

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/output"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// surviving returns a job of one rank on each of two hosts, which goes on without what it loses, and the file
// that has its output.
func surviving(t *testing.T) (*job, *supervisor.Supervisor, string) {
	name := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(name)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	out, err := output.New(file, file)
	require.NoError(t, err)
	t.Cleanup(out.Close)
	out.Expect(2, output.Options{})
	a, b := &node{name: "a", ranks: []int{0}}, &node{name: "b", ranks: []int{1}}
	j := &job{nodes: nodes{all: []*node{a, b}}, notYet: 2, past: past{history: new(history)}, output: out}
	j.nodes.locate()
	return j, supervisor.New(time.Now(), supervisor.Config{Survive: true,
		Ranks: []supervisor.Rank{{Agent: 0}, {Agent: 1}}}), name
}

// No further rank is started when every agent has said so or is lost, in either order.
func TestAllAreStartedWhenEveryAgentIsDoneOrLost(t *testing.T) {
	lost := agent.Lost{Ranks: []int{0}, Reason: "gone", Starting: true}
	for _, events := range [][]agent.Event{{lost, agent.AllStarted{}}, {agent.AllStarted{}, lost}} {
		j, s, _ := surviving(t)
		j.event(s, time.Now(), events[0])
		require.False(t, s.RanksOver(), "%v", events)
		j.event(s, time.Now(), events[1])
		require.True(t, s.RanksOver(), "rank 1 was not started: %v", events)
	}
}

// A rank that is lost with its host has not said that it has taken its input, and never will: the next part
// is read for the others.
func TestInputGoesOnWithoutALostHost(t *testing.T) {
	j, s, _ := surviving(t)
	in, err := newInput(os.Stdin)
	require.NoError(t, err)
	t.Cleanup(in.close)
	in.to[0], in.to[1] = true, true
	j.input = in
	require.Len(t, in.hand([]byte("text")), 2)
	j.event(s, time.Now(), agent.InputTaken{Rank: 1})
	require.Empty(t, in.next, "rank 0 has not taken it")
	j.event(s, time.Now(), agent.Lost{Ranks: []int{0}, Reason: "gone"})
	require.Len(t, in.next, 1)
	require.Equal(t, []agent.Command{agent.Input{Rank: 1, Data: []byte("more")}}, in.hand([]byte("more")))
}

// The line that a rank has not finished when its host is lost is shown as it is.
func TestLastLineOfALostHostIsShown(t *testing.T) {
	j, s, name := surviving(t)
	j.event(s, time.Now(), agent.Output{Rank: 0, Data: []byte("whole\nhalf")})
	j.event(s, time.Now(), agent.Lost{Ranks: []int{0}, Reason: "gone"})
	j.output.Flush(2 * time.Minute)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "whole\nhalf", string(text))
}

// eventsAgent has reported some events.
type eventsAgent struct {
	agent.Agent
	events chan agent.Event
}

func (a *eventsAgent) Events() <-chan agent.Event { return a.events }

// An agent that is lost before it gets Start does not know its ranks. They are lost all the same: otherwise the
// others would wait for them in Init.
func TestHostThatIsLostBeforeStartLosesItsRanks(t *testing.T) {
	j, s, _ := surviving(t)
	a, b := &eventsAgent{events: make(chan agent.Event, 1)}, &eventsAgent{}
	j.nodes.all[0].agent, j.nodes.all[1].agent = a, b
	events, over := make(chan agent.Event), make(chan struct{})
	defer close(over)
	j.nodes.merge(events, over)
	a.events <- agent.Lost{Reason: "gone", Starting: true}
	j.event(s, time.Now(), <-events)
	notices := s.Ready().Notices
	require.Len(t, notices, 1)
	require.Contains(t, notices[0], "rank 0 on ")
	require.Contains(t, notices[0], "gone: the job goes on without it")
}
