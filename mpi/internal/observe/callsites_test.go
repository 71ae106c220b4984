package observe

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// A place where a rank slept without a call, as in Finalize, is not told of.
func TestCallSites_WithoutACall(t *testing.T) {
	c := newCallSites()
	told := func() (list []snapshot.CallSite) {
		data, err := c.encoded()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &list))
		return list
	}
	c.event(engine.Event{Kind: engine.EventSlept, Elapsed: time.Millisecond})
	require.Empty(t, told())
	c.event(engine.Event{Kind: engine.EventCallBegin, Call: engine.CallSend, Bytes: 8})
	require.NotEmpty(t, told())
}

// A call that consists of others, such as Fence, counts once, with its own time.
func TestCallSites_Composite(t *testing.T) {
	c := newCallSites()
	for range 2 {
		for _, e := range []engine.Event{
			{Kind: engine.EventCallBegin, Call: engine.CallFence},
			{Kind: engine.EventCallBegin, Call: engine.CallCollective, Bytes: 8},
			{Kind: engine.EventCallBegin, Call: engine.CallCollective, Bytes: 8},
			{Kind: engine.EventCallEnd, Call: engine.CallCollective, Elapsed: time.Millisecond},
			{Kind: engine.EventCallEnd, Call: engine.CallCollective, Elapsed: time.Millisecond},
			{Kind: engine.EventCallEnd, Call: engine.CallFence, Elapsed: 3 * time.Millisecond},
		} {
			c.event(e)
		}
	}
	data, err := c.encoded()
	require.NoError(t, err)
	var list []snapshot.CallSite
	require.NoError(t, json.Unmarshal(data, &list))
	var n uint64
	var took time.Duration
	for _, s := range list {
		n, took = n+s.Count, took+s.Time
	}
	require.Equal(t, uint64(2), n)
	require.Equal(t, 6*time.Millisecond, took)
}
