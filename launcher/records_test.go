package launcher

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// notedAgent keeps the commands that it gets.
type notedAgent struct {
	agent.Agent
	got []agent.Command
}

func (a *notedAgent) Do(c agent.Command) { a.got = append(a.got, c) }

// The end of a job waits for the events of no rank that has none to send: each agent is asked for its own ranks,
// a lost one for none, and an answer may be empty.
func TestRecordsWaitForNobodyInVain(t *testing.T) {
	agents := []*notedAgent{{}, {}, {}}
	j := &job{Job: Job{OutputDir: t.TempDir()}, programs: programs{of: make([]int, 4)}, nodes: nodes{all: []*node{
		{agent: agents[0], ranks: []int{0, 2}}, {agent: agents[1], ranks: []int{1}}, {agent: agents[2], ranks: []int{3}},
	}}}
	j.nodes.locate()
	s := supervisor.New(time.Now(), supervisor.Config{Ranks: make([]supervisor.Rank, 4)})
	r := newRecords(j, s)
	now := time.Now()
	r.event(now, agent.Lost{Ranks: []int{3}})
	r.record(now, false)
	require.Equal(t, []agent.Command{agent.Records{Ranks: []int{0, 2}}}, agents[0].got)
	require.Equal(t, []agent.Command{agent.Records{Ranks: []int{1}}}, agents[1].got)
	require.Empty(t, agents[2].got)
	for id := range 3 {
		require.True(t, r.due(now))
		r.event(now, agent.Recorded{Rank: id, Events: []byte{}})
	}
	require.False(t, r.due(now))
}

// A job that fails while the answers to the user's request are under way asks again: all answers are waited for,
// and the later ones remain.
func TestRecordsOfTheLaterRequestRemain(t *testing.T) {
	j := &job{Job: Job{OutputDir: t.TempDir()}, programs: programs{of: make([]int, 1)},
		nodes: nodes{all: []*node{{name: "a", agent: new(notedAgent), ranks: []int{0}}}}}
	j.nodes.locate()
	s := supervisor.New(time.Now(), supervisor.Config{Ranks: make([]supervisor.Rank, 1)})
	ring, fd, err := recorder.NewRing()
	require.NoError(t, err)
	defer ring.Close()
	rank, err := recorder.Open(fd)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(fd))
	early := ring.Copy()
	rank.Note(recorder.Sent, 0, 0, 4711, 8)
	late := ring.Copy()
	r := newRecords(j, s)
	now := time.Now()
	r.record(now, true)
	r.record(now, false)
	r.event(now, agent.Recorded{Rank: 0, Events: early})
	r.event(now, agent.Recorded{Rank: 0, Events: late})
	r.event(now, agent.Recorded{Rank: 0, Events: early}) // not requested
	for range 2 {
		require.True(t, r.due(now))
		r.wrote(<-r.written)
	}
	require.False(t, r.due(now))
	text, err := os.ReadFile(j.rankFile(0, "events"))
	require.NoError(t, err)
	require.Contains(t, string(text), "4711")
}
