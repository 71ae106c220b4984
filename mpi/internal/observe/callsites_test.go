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
