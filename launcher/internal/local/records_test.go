package local

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// Each rank has an answer, so that the launcher does not wait for one that has no recorder, or no process.
func TestSendRecords_OfRanksWithoutRecorder(t *testing.T) {
	a := &Agent{ranks: map[int]*process{1: {}}, events: make(chan agent.Event, 2)}
	a.sendRecords([]int{1, 2})
	require.Len(t, a.events, 2)
	require.Equal(t, agent.Recorded{Rank: 1}, <-a.events)
	require.Equal(t, agent.Recorded{Rank: 2}, <-a.events)
}
