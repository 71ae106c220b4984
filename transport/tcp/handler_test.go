package tcp

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// withEnded gives a device whose one queue pair has ended: a receive posted to it completes at once, and
// raises an event if it asks for one.
func withEnded(tb testing.TB) *session {
	s := newSessionDevice(tb)
	s.begin(tb, true)
	s.qp.Abort(nil)
	s.poll()
	tb.Cleanup(func() { s.end(tb) })
	return s
}

// Each event comes on a thread that runs on the handler's core and nowhere else.
func TestHandler_N6_EventsComeOnItsCore(t *testing.T) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	s := withEnded(t)
	require.Equal(t, len(cores)*handlers.PerCore, s.dev.Query().Handlers)
	for _, core := range cores {
		var mu sync.Mutex
		where := make(chan []int, 1)
		h, err := s.dev.SetCompletionHandler(transport.HandlerConfig{Core: core, Lock: &mu,
			Complete: func(transport.HandlerID, transport.CQ) {
				mine, _ := sys.Affinity()
				where <- mine
			}})
		require.NoError(t, err)
		require.NoError(t, s.dev.ModifyCQ(s.cq, h))
		for range 3 {
			mu.Lock()
			require.NoError(t, s.qp.PostRecv(&transport.RecvWR{Notify: true}))
			mu.Unlock()
			select {
			case got := <-where:
				require.Equal(t, []int{core}, got)
			case <-time.After(patience):
				t.Fatal("no event came")
			}
		}
		mu.Lock()
		s.poll()
		require.NoError(t, s.dev.ModifyCQ(s.cq, 0))
		mu.Unlock()
		require.NoError(t, s.dev.CloseHandler(h))
	}
	mine, err := sys.Affinity()
	require.NoError(t, err)
	require.Equal(t, cores, mine, "the threads of others stay where they were")
}

func TestHandler_N2_CoreThatThisProcessMayNotUse(t *testing.T) {
	s := newSessionDevice(t)
	before := descriptors(t)
	_, err := s.dev.SetCompletionHandler(transport.HandlerConfig{Core: 8000, Lock: new(sync.Mutex),
		Complete: func(transport.HandlerID, transport.CQ) {}})
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.ErrorContains(t, err, "core 8000, which this process may not use")
	require.Equal(t, before, descriptors(t))
}

// A device with handlers leaves no descriptor after; TestMain looks after goroutines.
func TestHandler_N8_NothingIsLeft(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		d, err := New(Options{})
		require.NoError(t, err)
		for range d.Query().Handlers {
			h, err := d.SetCompletionHandler(transport.HandlerConfig{Core: -1, Lock: new(sync.Mutex),
				Spin:     time.Millisecond,
				Complete: func(transport.HandlerID, transport.CQ) {}})
			require.NoError(t, err)
			_, err = d.CreateCQ(8, h)
			require.NoError(t, err)
		}
		require.NoError(t, d.Close())
	})
}

// A handler that sleeps has the sockets of its queues watched, and one that a consumer polls beside it goes
// on being told.
func TestHandler_SleepsWatchingAndConsumersPollsDoNotEndThat(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	t.Cleanup(func() { s.end(t) })
	var mu sync.Mutex
	told := make(chan struct{}, 1)
	h, err := s.dev.SetCompletionHandler(transport.HandlerConfig{Core: -1, Lock: &mu,
		Complete: func(transport.HandlerID, transport.CQ) {
			told <- struct{}{}
		}})
	require.NoError(t, err)
	require.NoError(t, s.dev.ModifyCQ(s.cq, h))
	parked := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return s.cq.(*cq).Handling().Parked()
	}
	require.Eventually(t, parked, patience, time.Millisecond)
	mu.Lock()
	for range 10 * disarmAfter {
		s.cq.Poll(nil)
	}
	require.True(t, s.cq.(*cq).interest.on)
	require.NoError(t, s.qp.PostRecv(&transport.RecvWR{}))
	require.NoError(t, s.cq.RequestNotify(transport.NotifyNext))
	mu.Unlock()
	_, err = sys.Write(s.wire, frame.Header{Op: frame.Send, Flags: frame.Last}.Append(nil))
	require.NoError(t, err)
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("no event came")
	}
	mu.Lock()
	require.NoError(t, s.dev.ModifyCQ(s.cq, 0))
	mu.Unlock()
}

// BenchmarkHandOver is what it costs to hand an event from a handler's thread to a goroutine that sleeps on a
// channel, on another one; event is from its being raised to Complete.
func BenchmarkHandOver(b *testing.B) {
	s := withEnded(b)
	var mu sync.Mutex
	stamps := make(chan time.Time)
	h, err := s.dev.SetCompletionHandler(transport.HandlerConfig{Core: -1, Lock: &mu,
		Complete: func(transport.HandlerID, transport.CQ) {
			stamps <- time.Now()
		}})
	require.NoError(b, err)
	require.NoError(b, s.dev.ModifyCQ(s.cq, h))
	var raised, handed time.Duration
	for b.Loop() {
		mu.Lock()
		s.cq.Poll(make([]transport.WC, 1))
		begin := time.Now()
		if err := s.qp.PostRecv(&transport.RecvWR{Notify: true}); err != nil {
			b.Fatal(err)
		}
		mu.Unlock()
		told := <-stamps
		handed += time.Since(told)
		raised += told.Sub(begin)
	}
	b.ReportMetric(float64(raised.Nanoseconds())/float64(b.N), "event-ns/op")
	b.ReportMetric(float64(handed.Nanoseconds())/float64(b.N), "handover-ns/op")
	mu.Lock()
	defer mu.Unlock()
	require.NoError(b, s.dev.ModifyCQ(s.cq, 0))
}
