package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// TestHandOver_AfterClose: a queue pair that was used and released as soon as it was connected is handed to
// a queue that is closed by then.
func TestHandOver_AfterClose(t *testing.T) {
	d, err := New(Options{Host: "127.0.0.1"})
	require.NoError(t, err)
	defer d.Close()
	made, err := d.CreateCQ(8, 0)
	require.NoError(t, err)
	require.NoError(t, made.Close())
	c := made.(*cq)
	c.handOver(&qp{})
	dropped := false
	c.HandOver(queuepair.Arrival{Enter: func() { t.Error("it enters") }, Drop: func() { dropped = true }})
	require.True(t, dropped)
	require.False(t, c.TakeIn())
}
