package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// A step of a whole session is a command of the launcher or an event of the agent.
var wholeSession = []any{
	agent.Start{Ranks: []agent.Rank{{ID: 0}, {ID: 1}}},
	agent.Started{Rank: 0, PID: 10}, agent.Started{Rank: 1, PID: 11}, agent.AllStarted{},
	agent.Input{Rank: 0, Data: []byte("x")}, agent.InputTaken{Rank: 0},
	agent.Arrived{Rank: 0, More: true, Puts: []string{"k", "v"}}, agent.Arrived{Rank: 0}, agent.Release{},
	agent.Find{Rank: 0, Key: "k"}, agent.Output{Rank: 1, Data: []byte("text\n")},
	agent.Stopped{Rank: 1, Signal: 19}, agent.Continued{Rank: 1}, agent.Quiet{Rank: 1}, agent.Moving{Rank: 1},
	agent.Arrived{Rank: 0}, agent.Release{},
	agent.PMIClosed{Rank: 0, State: pmi.Finalized}, agent.Exited{Rank: 0, State: pmi.Finalized},
	agent.Exited{Rank: 1, State: pmi.InBarrier}, agent.PMIClosed{Rank: 1, State: pmi.Finalized},
	agent.OutputEnd{Rank: 1}, agent.OutputEnd{Rank: 0},
}

// drive gives a session the steps, and a supervisor the events that the session lets through. It returns at
// which step the agent broke the contract.
func drive(steps []any) (broken int, err error) {
	s, now := newSession(), time.Now()
	over := supervisor.New(now, supervisor.Config{Ranks: make([]supervisor.Rank, 2), Grace: time.Second})
	for i, step := range steps {
		if c, is := step.(agent.Command); is {
			s.command(c)
			continue
		}
		frame, err := eventForms.append(nil, step.(agent.Event))
		if err != nil {
			return i, err
		}
		e, rank, err := eventForms.parse(kind(frame[headerLen]), frame[headerLen+1:])
		if err == nil {
			err = s.event(e, rank)
		}
		if err != nil {
			return i, err
		}
		over.Event(now, e)
		over.Ready()
	}
	return len(steps), nil
}

func TestSession_Whole(t *testing.T) {
	_, err := drive(wholeSession)
	require.NoError(t, err)
}

// What comes a second time, and would mean something else then, is refused.
func TestSession_EventsThatComeTwice(t *testing.T) {
	for i, step := range wholeSession {
		e, is := step.(agent.Event)
		if !is {
			continue
		}
		twice := append(append(append([]any{}, wholeSession[:i+1]...), e), wholeSession[i+1:]...)
		broken, err := drive(twice)
		switch e := e.(type) {
		case agent.Find, agent.Output, agent.Stopped, agent.Continued, agent.Quiet, agent.Moving:
			require.NoError(t, err, "%T", e)
		case agent.Arrived:
			require.Equal(t, e.More, err == nil)
		default:
			require.ErrorIs(t, err, errProtocol, "%T", e)
			require.Equal(t, i+1, broken, "%T", e)
		}
	}
}

func TestSession_AnswersAreAskedForOnce(t *testing.T) {
	s := newSession()
	require.ErrorIs(t, s.answer(kindPrepared), errProtocol)
	s.ask(kindPrepared)
	require.ErrorIs(t, s.answer(kindClosed), errProtocol)
	require.NoError(t, s.answer(kindPrepared))
	require.ErrorIs(t, s.answer(kindPrepared), errProtocol)
}

// FuzzSession drives whole sessions of which steps are left out, doubled, swapped or cut off. Each pair of
// bytes is what to do, and where. The contract holds for whatever the session lets through.
func FuzzSession(f *testing.F) {
	for what := range byte(4) {
		for at := range byte(len(wholeSession)) {
			f.Add([]byte{what, at})
		}
	}
	f.Fuzz(func(t *testing.T, changes []byte) {
		steps := append([]any{}, wholeSession...)
		for ; len(changes) > 1 && len(steps) > 1 && len(steps) < 100; changes = changes[2:] {
			at := int(changes[1]) % len(steps)
			switch changes[0] % 4 {
			case 0: // left out
				steps = append(steps[:at], steps[at+1:]...)
			case 1: // doubled, unless it is Start, which the launcher sends once
				if _, start := steps[at].(agent.Start); !start {
					steps = append(steps[:at+1], steps[at:]...)
				}
			case 2: // swapped with the next one
				next := (at + 1) % len(steps)
				steps[at], steps[next] = steps[next], steps[at]
			default: // cut off
				steps = steps[:at]
			}
		}
		accepted, _ := drive(steps)
		seen := make(map[any]bool)
		for _, step := range steps[:accepted] {
			switch e := step.(type) {
			case agent.Started, agent.Exited, agent.PMIClosed, agent.OutputEnd, agent.AllStarted:
				require.False(t, seen[e], "%T twice", e)
				seen[e] = true
			case agent.Output:
				require.False(t, seen[agent.OutputEnd{Rank: e.Rank}], "output after its end")
			}
		}
	})
}
