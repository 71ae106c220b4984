package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

func TestCallStats(t *testing.T) {
	var none *callStats
	require.Empty(t, none.line(0))
	s := &callStats{}
	require.Empty(t, s.line(0), "no calls, nothing to show")
	for _, e := range []engine.Event{
		{Kind: engine.EventCallBegin, Call: engine.CallSend},
		{Kind: engine.EventCallEnd, Call: engine.CallSend, Elapsed: 3 * time.Microsecond},
		{Kind: engine.EventCallEnd, Call: engine.CallSend, Elapsed: 4 * time.Microsecond},
		{Kind: engine.EventCallEnd, Call: engine.CallRecv, Elapsed: time.Millisecond},
		{Kind: engine.EventMatch}, {Kind: engine.EventMatch, Unexpected: true}, {Kind: engine.EventMatch},
	} {
		s.event(e)
	}
	require.Equal(t, "weft: rank 3: time in calls: Send 2 in 7µs; Recv 1 in 1ms; "+
		"2 receives were posted before their message, 1 after\n", s.line(3))
	require.Zero(t, testing.AllocsPerRun(100, func() { s.event(engine.Event{Kind: engine.EventMatch}) }))
}
