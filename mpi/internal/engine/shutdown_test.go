package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// TestNothingIsSaidAfterClose: a rank that has closed a connection, and owes its peer credit or is asked
// something by it, does not take the refusal of its own queue pair for a failure of the peer, and so does not
// cut the connection of a peer that is still on its way out.
func TestNothingIsSaidAfterClose(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		e := w[0]
		e.mu.Lock()
		defer e.mu.Unlock()
		p := e.peers[1]
		e.closing = true
		p.ch.QP().Close()
		err := p.ch.QP().PostSend(&transport.SendWR{Op: transport.OpSend})
		require.ErrorIs(t, err, transport.ErrState, "something can be posted: the test shows nothing")
		e.progress.advancePeer(p)
		e.failures.failPeer(p, err)
		require.Empty(t, e.failures.peers)
		require.NotEqual(t, transport.StateError, p.ch.QP().State(), "the connection was cut")
	})
}

// TestCloseSeenByAnotherGoroutine: who waits for connections to close is woken when the pass that sees the end
// of the last one is made by somebody else.
func TestCloseSeenByAnotherGoroutine(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		e := w[0]
		asleep := func(what func() bool) {
			for there := false; !there; time.Sleep(time.Millisecond) {
				e.mu.Lock()
				there = what()
				e.mu.Unlock()
			}
		}
		closed, driven := make(chan struct{}), make(chan struct{})
		over := false
		go func() { // it makes the passes
			defer close(driven)
			e.waiting.waitUntil(0, nil, func() bool { return over })
		}()
		asleep(func() bool { return e.hub.sleepers.owned.Load() })
		go func() {
			defer close(closed)
			e.waiting.waitUntil(0, nil, e.closedLocked)
		}()
		asleep(func() bool { return len(e.hub.sleepers.parked) == 1 })
		for _, e := range w {
			e.mu.Lock()
			e.closing = true
			e.peers[1-e.rank].ch.QP().Close()
			e.mu.Unlock()
		}
		go w[1].waiting.waitUntil(0, nil, w[1].closedLocked)
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Error("the connection is closed, and who waits for that sleeps on")
		}
		e.mu.Lock()
		over = true
		e.hub.sleepers.wakeAll()
		e.mu.Unlock()
		<-closed
		<-driven
	})
}

// TestNothingSucceedsAfterClose: an operation that the rank's own closed connection refuses has failed, though
// its peer has not.
func TestNothingSucceedsAfterClose(t *testing.T) {
	w := world(t, tcpDevices(t, 2))
	connected(t, w)
	windows := windowOf(t, w, 1)
	e, target := w[0], windows[0].Target(1)
	require.NoError(t, target.Reach(nil))
	e.mu.Lock()
	p := e.peers[1]
	e.closing = true
	p.ch.QP().Close()
	e.mu.Unlock()

	require.ErrorIs(t, target.Put(make([]byte, wordBytes), 0, nil), transport.ErrState)

	fetching := func(state peerState, fetch func(r *request)) error { // the end of a receive that was matched
		h, err := e.Recvs.Irecv(world0, make([]byte, 5000), 1, 1, 1)
		require.NoError(t, err)
		e.mu.Lock()
		r := e.Requests.find(h)
		require.True(t, e.matching.RemovePosted(&r.posted))
		p.state = state
		fetch(r)
		require.Empty(t, e.failures.peers)
		e.mu.Unlock()
		_, err = e.Requests.Wait(h)
		return err
	}
	require.ErrorIs(t, fetching(peerOpen, func(r *request) {
		e.Recvs.fetchBegunLocked(r, p, false, transport.ErrState)
	}), transport.ErrState)
	require.ErrorIs(t, fetching(peerClosed, func(r *request) {
		e.Recvs.fetchLocked(r, p, rendezvous.Source{Key: 1, Length: 5000})
	}), ErrFinalized)
	require.ErrorIs(t, fetching(peerClosed, func(r *request) {
		a := &unexpectedMessage{peer: p, bytes: 5000, incomplete: true}
		p.unexpectedCount++
		e.unexpected.count++
		e.Recvs.deliverUnexpectedLocked(r, a)
	}), ErrFinalized)
	for i := range windows {
		require.NoError(t, windows[i].Free())
	}
}

// passesAfterStop counts the passes over a queue of a stopped endpoint.
type passesAfterStop struct {
	transport.CQ
	e *Engine
	n atomic.Int32
}

func (c *passesAfterStop) Poll(wc []transport.WC) int {
	if c.e.stopped != nil {
		c.n.Add(1)
	}
	return c.CQ.Poll(wc)
}

// TestAStoppedEndpointMakesNoPass: a goroutine that waits may be woken while Destroy closes the devices, which
// nobody may use then.
func TestAStoppedEndpointMakesNoPass(t *testing.T) {
	for name, wait := range map[string]func(e *Engine) error{
		"a receive": func(e *Engine) error {
			return e.Recvs.Recv(0, nil, 1, 0, 1, &Status{})
		},
		"a probe": func(e *Engine) error {
			_, err := e.Probes.Probe(0, 1, 0, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := withRawPeer(t)
			e.mu.Lock()
			passes := &passesAfterStop{CQ: e.fabrics[0].cq, e: e}
			e.fabrics[0].cq = passes
			e.mu.Unlock()
			over := make(chan error)
			go func() { over <- wait(e) }()
			for asleep := false; !asleep; time.Sleep(time.Millisecond) {
				e.mu.Lock()
				asleep = e.hub.sleepers.owned.Load()
				e.mu.Unlock()
			}
			e.hub.Fail(ErrFinalized)
			require.ErrorIs(t, <-over, ErrFinalized)
			require.Zero(t, passes.n.Load())
		})
	}
}
