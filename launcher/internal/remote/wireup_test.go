package remote

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// A simulation is a job whose ranks, agents and supervisor talk to each other in one goroutine: lines of PMI
// between ranks and agents, frames between agents and the supervisor.
type simulation struct {
	t      *testing.T
	s      *supervisor.Supervisor
	agents []*agent.PMI
	of     []int            // by rank: its agent
	said   []map[string]int // by rank: how often it was answered in which way
	values []string         // by rank: the last value that it got
	from   []Traffic        // by agent, since the stage began: to the supervisor
	to     []Traffic        // and from it
	all    Traffic          // of all stages
}

func simulate(t *testing.T, agents, each int) *simulation {
	s := &simulation{t: t, from: make([]Traffic, agents), to: make([]Traffic, agents)}
	config := supervisor.Config{Grace: time.Second}
	for number := range agents {
		start := agent.Start{PMI: pmi.Config{KVSName: "weft_0123abcd", Size: agents * each}}
		for range each {
			start.Ranks = append(start.Ranks, agent.Rank{ID: len(s.of)})
			s.of = append(s.of, number)
			s.said = append(s.said, make(map[string]int))
			config.Ranks = append(config.Ranks, supervisor.Rank{Program: "p", Host: "h", Agent: number})
		}
		s.agents = append(s.agents, agent.NewPMI(start))
	}
	s.values = make([]string, len(s.of))
	s.s = supervisor.New(time.Unix(1000, 0), config)
	for rank := range s.of {
		s.s.Event(time.Unix(1000, 0), agent.Started{Rank: rank, PID: 1000 + rank})
	}
	s.s.Event(time.Unix(1000, 0), agent.AllStarted{})
	s.commands()
	return s
}

// line has a rank say something to its agent, and everything happen that follows.
func (s *simulation) line(rank int, text string) {
	number := s.of[rank]
	replies, events := s.agents[number].Line(rank, text)
	s.deliver(replies)
	for _, e := range events {
		frame, err := eventForms.append(nil, e)
		require.NoError(s.t, err)
		s.from[number].Add(Traffic{1, int64(len(frame))})
		k, body, err := readFrame(bytes.NewReader(frame), maxEvent)
		require.NoError(s.t, err)
		e, _, err = eventForms.parse(k, body)
		require.NoError(s.t, err)
		s.s.Event(time.Unix(1000, 0), e)
		s.commands()
	}
}

// commands hands what the supervisor wants to the agents that it concerns.
func (s *simulation) commands() {
	for _, c := range s.s.Ready().Commands {
		if found, is := c.(agent.Found); is {
			s.command(s.of[found.Rank], c)
			continue
		}
		for number := range s.agents {
			s.command(number, c)
		}
	}
}

func (s *simulation) command(number int, c agent.Command) {
	frame, err := commandForms.append(nil, c)
	require.NoError(s.t, err)
	s.to[number].Add(Traffic{1, int64(len(frame))})
	k, body, err := readFrame(bytes.NewReader(frame), maxCommand)
	require.NoError(s.t, err)
	c, _, err = commandForms.parse(k, body)
	require.NoError(s.t, err)
	replies, events := s.agents[number].Do(c)
	require.Empty(s.t, events)
	s.deliver(replies)
}

func (s *simulation) deliver(replies []pmi.Reply) {
	for _, r := range replies {
		name, _, _ := strings.Cut(strings.TrimSpace(r.Line), " ")
		s.said[r.Rank][name]++
		if _, value, ok := strings.Cut(r.Line, " value="); ok {
			s.values[r.Rank] = strings.TrimSpace(value)
		}
	}
}

// stage ends a stage: no agent has had more messages than these with the supervisor.
func (s *simulation) stage(name string, from, to int64) {
	for i := range s.agents {
		require.LessOrEqual(s.t, s.from[i].Messages, from, "%s: from agent %d", name, i)
		require.LessOrEqual(s.t, s.to[i].Messages, to, "%s: to agent %d", name, i)
		s.all.Add(s.from[i])
		s.all.Add(s.to[i])
		s.from[i], s.to[i] = Traffic{}, Traffic{}
	}
}

func simulatedCard(rank int) string {
	return fmt.Sprintf("kernel=%016x;shm=shm:%016x-%d;tcp=tcp:[fd00:77::%x:%x]:%d", rank/16, rank, rank, rank/16,
		rank%16, 30000+rank)
}

// 10,000 ranks on 625 hosts find each other: the barrier in Init, with the cards of all, is one message from
// each agent and one to it; the first message to a neighbor, one at most of each; the barrier in Finalize as
// in Init. All of it is less than 300 bytes a rank at the launcher.
func TestWireUp_OfTenThousandRanks(t *testing.T) {
	const agents, each = 625, 16
	s := simulate(t, agents, each)
	n := agents * each
	everybody := func(text string) {
		for rank := range n {
			s.line(rank, text)
		}
	}
	neighbors := func() {
		for rank := range n {
			s.line(rank, fmt.Sprintf("cmd=get kvsname=weft_0123abcd key=weft-card-%d", (rank+1)%n))
		}
	}
	everybody("cmd=init pmi_version=1 pmi_subversion=1")
	everybody("cmd=get_maxes")
	everybody("cmd=get_appnum")
	everybody("cmd=get_my_kvsname")
	s.stage("init", 0, 0)
	for rank := range n {
		s.line(rank, fmt.Sprintf("cmd=put kvsname=weft_0123abcd key=weft-card-%d value=%s", rank,
			simulatedCard(rank)))
	}
	everybody("cmd=barrier_in")
	s.stage("cards and barrier", 1, 1)
	neighbors()
	s.stage("first message to a neighbor", 1, 1)
	for rank := range n {
		require.Equal(t, simulatedCard((rank+1)%n), s.values[rank])
		require.Equal(t, 1, s.said[rank]["cmd=barrier_out"])
	}
	neighbors()
	s.stage("what an agent has learned", 0, 0)
	everybody("cmd=barrier_in")
	s.stage("barrier", 1, 1)
	everybody("cmd=finalize")
	s.stage("finalize", 0, 0)
	require.Nil(t, s.s.Cause())
	perRank := float64(s.all.Bytes) / float64(n)
	t.Logf("%d ranks on %d agents: %d messages and %.0f bytes a rank at the launcher", n, agents,
		s.all.Messages, perRank)
	require.Less(t, perRank, 300.)
}

// A key that nobody has put is asked for once an agent and barrier, and may be there after the next one.
func TestWireUp_MissingKeys(t *testing.T) {
	s := simulate(t, 3, 2)
	for rank := range 6 {
		s.line(rank, "cmd=init pmi_version=1")
		s.line(rank, "cmd=get kvsname=weft_0123abcd key=late")
		require.Equal(t, "unknown", s.values[rank])
	}
	s.stage("missing", 1, 1)
	s.line(5, "cmd=put kvsname=weft_0123abcd key=late value=here")
	for rank := range 6 {
		s.line(rank, "cmd=barrier_in")
	}
	for rank := range 6 {
		s.line(rank, "cmd=get kvsname=weft_0123abcd key=late")
		require.Equal(t, "here", s.values[rank])
	}
	s.stage("there", 2, 2)
}
