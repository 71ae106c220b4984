package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// fullQueue is a world of three ranks. Rank 0 has no room for another request at rank 1, which makes no call:
// Reads wait there. It has a window with both others.
func fullQueue(t *testing.T) (caller *Engine, window *Window) {
	t.Helper()
	w, window := withWindow(t)
	fillQueue(t, w[0], window)
	return w[0], window
}

// withWindow is a world of three ranks, of which rank 0 has a window with both others.
func withWindow(t *testing.T) (w []*Engine, window *Window) {
	t.Helper()
	w = worldOf(t, tcpDevices(t, 3), Config{Passive: time.Hour})
	ranks(t, w, func(e *Engine) error {
		one := make([]byte, 1)
		for peer := range w {
			if e.Rank() != 0 && peer != 0 || peer == e.Rank() {
				continue
			}
			if err := e.Sends.Send(world0, one, peer, 0); err != nil {
				return err
			}
			if _, err := e.recv(world0, one, peer, 0, 1); err != nil {
				return err
			}
		}
		return nil
	})
	windows := windowOf(t, w, 1024)
	for i := range windows {
		t.Cleanup(func() { require.NoError(t, windows[i].Free()) })
	}
	for _, rank := range []int{1, 2} {
		require.NoError(t, windows[0].Target(rank).Reach(nil))
	}
	return w, windows[0]
}

// fillQueue leaves no room for another request at rank 1.
func fillQueue(t *testing.T, caller *Engine, window *Window) {
	t.Helper()
	caller.mu.Lock()
	defer caller.mu.Unlock()
	mr, err := caller.fabrics[0].pd.Alloc(wordBytes, transport.LocalWrite)
	require.NoError(t, err)
	for !isQueueFull(err) {
		require.NoError(t, err)
		err = caller.peerLocked(1).ch.QP().PostSend(&transport.SendWR{
			ID: oneSidedOwner<<56 | 1<<30, // no operation has this number: nobody looks at the completion
			Op: transport.OpRead, Flags: transport.FlagSignaled,
			Local:  []transport.SGE{{MR: mr, Length: wordBytes}},
			Remote: []transport.Segment{{Key: window.Target(1).keys.Control, Length: wordBytes}},
		})
	}
}

// posting begins a call at a target whose queue is full, and returns when it waits for room.
func posting(t *testing.T, caller *Engine, target *Target, call func() error) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() { ended <- call() }()
	require.Eventually(t, func() bool {
		caller.mu.Lock()
		defer caller.mu.Unlock()
		return !target.posted.empty()
	}, 2*time.Minute, time.Millisecond, "the call begins no operation")
	return ended
}

// A Put that is given up while there is no room for it leaves no request behind.
func TestPutGivenUpForRoom(t *testing.T) {
	caller, window := fullQueue(t)
	target := window.Target(1)
	ctx, cancel := context.WithCancel(t.Context())
	var request Request
	ended := posting(t, caller, target, func() (err error) {
		request, err = target.BeginPut(make([]byte, 8000), 0, caller.Cancels.NewCanceller(ctx))
		return err
	})
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	assert.Zero(t, request)
	caller.mu.Lock()
	defer caller.mu.Unlock()
	assert.True(t, target.posted.empty())
	for _, r := range caller.Requests.all {
		assert.NotEqual(t, kindOneSided, r.kind, "a request is left")
	}
}

// A Flush that is given up while there is no room for the Read that confirms Writes leaves that to the next.
func TestFlushGivenUpForRoom(t *testing.T) {
	caller, window := fullQueue(t)
	target := window.Target(1)
	target.written = true
	ctx, cancel := context.WithCancel(t.Context())
	ended := posting(t, caller, target, func() error { return target.Flush(caller.Cancels.NewCanceller(ctx)) })
	caller.mu.Lock()
	assert.True(t, target.written, "another Flush would not confirm")
	caller.mu.Unlock()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	assert.True(t, target.written)
}

// An operation that waits for room when its peer fails has ended then: its entry may be another's.
func TestPeerFailsWhileThereIsNoRoom(t *testing.T) {
	caller, window := fullQueue(t)
	target, other := window.Target(1), window.Target(2)
	ended := posting(t, caller, target, func() error { return target.Put(make([]byte, 8000), 0, nil) })
	caller.mu.Lock()
	caller.failures.failPeer(caller.peerLocked(1), transport.ErrPeerLost)
	o, err := other.newOperationLocked(caller.peerLocked(2), nil)
	require.NoError(t, err)
	o.kept = true
	caller.mu.Unlock()
	require.ErrorIs(t, <-ended, transport.ErrPeerLost)
	caller.mu.Lock()
	defer caller.mu.Unlock()
	assert.Same(t, o, other.posted.oldest, "the other's operation is gone")
	other.dropLocked(o)
}

// A send that is cancelled while there is no room for its WITHDRAW is cancelled when there is.
func TestCancelWithoutRoom(t *testing.T) {
	w, window := withWindow(t)
	r, err := w[0].Sends.Issend(world0, nil, 1, 5)
	require.NoError(t, err)
	drive(t, w, func() bool { return unexpected(w[1]) == 1 })
	fillQueue(t, w[0], window)
	require.NoError(t, w[0].Cancels.Cancel(r))
	p := peerOf(w[0], 1)
	require.True(t, p.fabric.sender.SendQueueFull(p.ch), "there is room, so nothing is tested")
	require.True(t, p.deferred, "no pass would try again")
	drive(t, w, func() bool { return w[0].isDone(r) })
	st, err := w[0].Requests.Wait(r)
	require.NoError(t, err)
	require.True(t, st.Cancelled)
}
