package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// A Wait that is woken in a repeatable run ends, even if another goroutine has polled all there was before it
// looks; and further signals for the same Wait do not end the next one.
func TestWait_OfARepeatableRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := NewNetwork(1, ManualConnect())
		dev := net.Device()
		defer dev.Close()
		q, err := dev.CreateCQ(8, 0)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- q.Wait(-1) }()
		synctest.Wait()

		net.mu.Lock()
		c := q.(*cq)
		c.push(transport.WC{})
		c.push(transport.WC{})
		c.wcs = nil // as after a Poll
		net.mu.Unlock()
		synctest.Wait()
		require.Len(t, ended, 1)

		began := time.Now()
		require.NoError(t, q.Wait(time.Hour))
		require.Equal(t, time.Hour, time.Since(began))
	})
}
