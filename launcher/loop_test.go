package launcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// No further rank is started when every agent has said so or is lost, in either order.
func TestAllAreStartedWhenEveryAgentIsDoneOrLost(t *testing.T) {
	a, b := &node{name: "a", ranks: []int{0}}, &node{name: "b", ranks: []int{1}}
	lost := agent.Lost{Ranks: []int{0}, Reason: "gone", Starting: true}
	for _, events := range [][]agent.Event{{lost, agent.AllStarted{}}, {agent.AllStarted{}, lost}} {
		j := &job{nodes: nodes{all: []*node{a, b}}, notYet: 2, past: past{history: new(history)}}
		j.nodes.locate()
		s := supervisor.New(time.Now(), supervisor.Config{Survive: true,
			Ranks: []supervisor.Rank{{Agent: 0}, {Agent: 1}}})
		j.event(s, time.Now(), events[0])
		require.False(t, s.RanksOver(), "%v", events)
		j.event(s, time.Now(), events[1])
		require.True(t, s.RanksOver(), "rank 1 was not started: %v", events)
	}
}
