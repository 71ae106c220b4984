package remote

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// connectThrough starts an agent, and by it another one, which has the ranks 4 and 5.
func connectThrough(t *testing.T) (inner, outer *Agent) {
	inner = connect(t)
	inner.Do(agent.Start{Ranks: []agent.Rank{{ID: 1}}})
	require.Equal(t, agent.Started{Rank: 1, PID: 1001}, next(t, inner))
	require.Equal(t, agent.AllStarted{}, next(t, inner))
	outer, err := inner.ConnectThrough(t.Context(), "farther", "job", []string{os.Args[0], "far"})
	require.NoError(t, err)
	startTwo(t, outer)
	return inner, outer
}

func TestAgentThroughAnother(t *testing.T) {
	inner, outer := connectThrough(t)
	outer.Do(agent.Input{Rank: 4, Data: []byte("echo")})
	require.Equal(t, agent.Output{Rank: 4, Data: []byte("echo")}, next(t, outer))
	content := bytes.Repeat([]byte("program "), 1<<19)
	var reply string
	require.NoError(t, outer.Stage(t.Context(), 3, bytes.NewReader(content), &reply))
	require.Equal(t, fmt.Sprint("3 ", crc32.ChecksumIEEE(content)), reply)
	third, err := outer.ConnectThrough(t.Context(), "farthest", "job", []string{os.Args[0], "far"})
	require.NoError(t, err)
	for _, a := range []*Agent{third, outer, inner} {
		a.Close()
		select {
		case <-a.ended: // the far side has answered Closed
		default:
			t.Fatal("the far side has not closed its agent")
		}
	}
}

// A starter that fails on the host in between says why, and those that serve others go on.
func TestStarterThatFailsOnAnotherHost(t *testing.T) {
	inner, outer := connectThrough(t)
	_, err := inner.ConnectThrough(t.Context(), "third", "job", []string{"sh", "-c", "echo no route >&2; exit 1"})
	require.ErrorContains(t, err, "host third: the connection to its agent has ended (sh: no route)")
	_, err = inner.ConnectThrough(t.Context(), "third", "job", []string{"/nosuch"})
	require.ErrorContains(t, err, "the starter cannot be run")
	outer.Do(agent.Input{Rank: 4, Data: []byte("echo")})
	require.Equal(t, agent.Output{Rank: 4, Data: []byte("echo")}, next(t, outer))
	outer.Close()
	inner.Close()
}

// With an agent those are lost that are reached through it, and all of them name its host.
func TestAgentThatEndsTakesThoseBehindItAlong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strike func(inner *Agent)
		reason string
		silent bool
	}{
		"killed": {func(a *Agent) { a.Do(agent.Input{Rank: 1, Data: []byte("die")}) },
			"host far is lost: the connection to its agent has ended", false},
		"silent": {func(a *Agent) { syscall.Kill(a.process.cmd.Process.Pid, syscall.SIGSTOP) },
			"host far is lost: nothing was heard from it for 1.75s: it is down or cut off", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner, outer := connectThrough(t)
			c.strike(inner)
			require.Equal(t, agent.Lost{Ranks: []int{1}, Reason: c.reason, Silent: c.silent}, next(t, inner))
			require.Equal(t, agent.Lost{Ranks: []int{4, 5}, Reason: c.reason, Silent: c.silent}, next(t, outer))
			outer.Close()
			inner.Close()
		})
	}
}

// The end of an agent that another one has started is its own.
func TestAgentBehindAnotherEnds(t *testing.T) {
	inner, outer := connectThrough(t)
	outer.Do(agent.Input{Rank: 4, Data: []byte("die")})
	lost := agent.Lost{Ranks: []int{4, 5}, Reason: "host farther is lost: the connection to its agent has ended"}
	require.Equal(t, lost, next(t, outer))
	inner.Do(agent.Input{Rank: 1, Data: []byte("echo")})
	require.Equal(t, agent.Output{Rank: 1, Data: []byte("echo")}, next(t, inner))
	outer.Close()
	inner.Close()
}

// An agent is not believed about relays that it does not have.
func TestRelaysThatDoNotExist(t *testing.T) {
	a := newAgentForTest()
	require.NoError(t, a.relayed(frame{kindRelayed, rankOf(0)}), "one that was left")
	require.ErrorIs(t, a.relayed(frame{kindRelayed, rankOf(1)}), errProtocol)
	require.ErrorIs(t, a.relayed(frame{kindRelayEnd, nil}), errProtocol)
}

// The agents behind all relays have the same time to end, and no starter is left afterwards.
func TestCloseRelays_TakesNoLongerForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{relays: make(map[int]*relayed)}
		var stopped atomic.Int32
		stop := func() { stopped.Add(1) }
		for number := range 3 {
			s.relays[number] = &relayed{in: newQueue(), process: &process{
				ended: make(chan struct{}), stdin: nopCloser{io.Discard}, stdout: io.NopCloser(nil), leave: stop,
			}}
		}
		begin := time.Now()
		s.closeRelays()
		require.Equal(t, closeTimeout, time.Since(begin), "of the bubble's clock")
		require.EqualValues(t, 3, stopped.Load())
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func newAgentForTest() *Agent { return &Agent{relays: make(map[int]*relay), nextRelay: 1} }
