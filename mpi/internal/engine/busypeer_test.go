package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStream_E12_ABusyPeerIsNotWaitedFor: sends to one who shares our memory, and looks for nothing now, are
// over as long as its ring has room, not only the part of it in which a stream stays; and nothing is lost or
// out of order.
func TestStream_E12_ABusyPeerIsNotWaitedFor(t *testing.T) {
	w := loopWorld(t)
	withoutTimers(w)
	const messages, size = 110, 900
	buf := make([]byte, size)
	send := func(i int) Request {
		pattern(buf, 0, i)
		r, err := w[0].Sends.Isend(world0, buf, 1, 1)
		require.NoError(t, err)
		return r
	}
	receive := func(i int) {
		got := make([]byte, size)
		r, err := w[1].Recvs.Irecv(world0, got, 0, 1, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[1].isDone(r) })
		_, err = w[1].Requests.Wait(r)
		require.NoError(t, err)
		pattern(buf, 0, i)
		require.Equal(t, buf, got)
	}
	first := send(0) // it needs larger slots
	receive(0)
	_, err := w[0].Requests.Wait(first)
	require.NoError(t, err)
	p := w[0].peers[1]
	require.Equal(t, 1, p.ch.Phase())
	for round := range 3 {
		for i := range messages - 1 {
			r := send(round + i)
			require.True(t, w[0].isDone(r), "message %d waits", i)
			_, err := w[0].Requests.Wait(r)
			require.NoError(t, err)
		}
		over := make(chan error)
		go func() {
			buf := make([]byte, size)
			pattern(buf, 0, round+messages-1)
			over <- w[0].Sends.Send(world0, buf, 1, 1)
		}()
		select {
		case err := <-over:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "a blocking send waits")
		}
		require.False(t, p.queued())
		for i := range messages {
			receive(round + i)
		}
	}
}
