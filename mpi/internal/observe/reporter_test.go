package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// A rank that has computed for long is not quiet because a poll finds it in a wait, only if the next one does
// too.
func TestReporter_OneWaitIsNotQuiet(t *testing.T) {
	r := newReporter(nil, snapshot.Running)
	r.latestPhase, r.moved = snapshot.Running, time.Now().Add(-time.Hour)
	for range 2 {
		_, changed := r.found(0)
		require.False(t, changed)
		_, changed = r.found(1)
		require.False(t, changed)
	}
	for {
		k, changed := r.found(1)
		if changed { // the search may take several polls
			require.Equal(t, snapshot.Quiet, k)
			break
		}
	}
	k, changed := r.found(0)
	require.True(t, changed)
	require.Equal(t, snapshot.Moving, k)
}
