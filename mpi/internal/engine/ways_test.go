package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/tuning"
	"github.com/weft-mpi/weft/transport/shm"
)

// What was forced leaves nothing behind, whichever ways were forced one after another.
func TestForceWay_IsUndone(t *testing.T) {
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second})
	connected(t, w)
	s, p := &w[0].Sends, w[0].peers[1]
	before := unforced{p.copies, p.unawaited, p.eagerLimit, p.shortLimit}
	s.ForceWay(tuning.Announced)
	require.Less(t, p.copies.awaited, 4096)
	s.ForceWay(tuning.Ring)
	require.Greater(t, p.copies.awaited, 64<<10)
	require.False(t, p.copies.sampled)
	s.ForceWay(tuning.Chosen)
	require.Equal(t, before, unforced{p.copies, p.unawaited, p.eagerLimit, p.shortLimit})
	require.Nil(t, s.unforced)
}
