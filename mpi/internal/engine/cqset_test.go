package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// pollerCQ is a queue that is nothing but its poller.
type pollerCQ struct {
	transport.CQ
	poller  *sys.Poller
	inside  int
	pending bool // a Poll would find something
}

func (c *pollerCQ) Descriptor() int { return c.poller.Descriptor() }
func (c *pollerCQ) Wake()           { c.poller.Wake() }
func (c *pollerCQ) LeaveWait()      { c.poller.Drain(); c.inside-- }
func (c *pollerCQ) EnterWait() (bool, error) {
	if c.pending {
		return false, nil
	}
	c.inside++
	return true, nil
}

type pollableDevice struct{ transport.Device }

func (pollableDevice) Query() transport.DeviceAttr { return transport.DeviceAttr{PollableCQs: true} }

// Test_SleepOnSeveralFabrics: traffic on any of them ends the sleep, a wake ends one sleep and not the next,
// and no goroutine is started.
func Test_SleepOnSeveralFabrics(t *testing.T) {
	var s cqSet
	var queues [2]*pollerCQ
	for i := range queues {
		p, err := sys.NewPoller()
		require.NoError(t, err)
		defer p.Close()
		queues[i] = &pollerCQ{poller: p}
		require.NoError(t, s.add("a fabric", pollableDevice{}, queues[i]))
	}
	defer s.close()
	before := runtime.NumGoroutine()
	for _, q := range queues {
		q.Wake()
		require.NoError(t, s.sleep())
		n, err := s.poller.Await(make([]int32, 2), 0)
		require.NoError(t, err)
		require.Zero(t, n, "the wake-up was consumed")
	}
	queues[1].pending = true
	require.NoError(t, s.sleep(), "it does not block when something is there")
	require.Zero(t, queues[0].inside+queues[1].inside)
	require.LessOrEqual(t, runtime.NumGoroutine(), before)

	queues[1].pending = false
	woken := make(chan error)
	go func() { woken <- s.sleep() }()
	s.wake()
	select {
	case err := <-woken:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("wake does not end the sleep")
	}
}

// Test_SeveralFabricsHaveToBePollable: a queue without a descriptor cannot be among several.
func Test_SeveralFabricsHaveToBePollable(t *testing.T) {
	devices := loopDevices(2)
	var s cqSet
	defer s.close()
	require.NoError(t, s.add("a", devices[0], &pollerCQ{}))
	err := s.add("b", devices[1], &pollerCQ{})
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.ErrorContains(t, err, "fabric b")
}
