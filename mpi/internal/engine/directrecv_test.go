package engine

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// TestDirect_AnnouncedMessages are fetched by the receive that looks for them, if they are the ones that it
// wants, have room, and can be copied at once; else by the receive that is posted then.
func TestDirect_AnnouncedMessages(t *testing.T) {
	const maxBytes = 1000
	messages := often(400)
	w := worldOf(t, fabrics["sim"](t, 5, 2), Config{EagerLimit: 100, SpinTime: time.Second})
	sent := make(chan error, 1)
	go func() {
		for i := range messages {
			b := make([]byte, 101+i%(maxBytes-100))
			pattern(b, 0, i)
			if err := w[0].Sends.Send(world0, b, 1, i%3); err != nil {
				sent <- err
				return
			}
		}
		_, err := w[0].recv(world0, nil, 1, 0, 1) // makes progress until all has arrived
		sent <- err
	}()
	taken := 0
	for i := range messages {
		want := make([]byte, 101+i%(maxBytes-100))
		pattern(want, 0, i)
		room := maxBytes
		if i%7 == 0 {
			room = len(want) - 1 // one byte short: never at once, and an error
		}
		buf := make([]byte, room)
		if i%5 == 0 {
			_, ok := w[1].RecvNext(world0, buf, 0, i%3+1)
			require.False(t, ok, "a message with another tag")
		}
		n, ok := w[1].RecvNext(world0, buf, 0, i%3)
		for tries := 0; !ok && taken == 0 && tries < 1000; tries++ { // the sender may not run yet
			runtime.Gosched()
			n, ok = w[1].RecvNext(world0, buf, 0, i%3)
		}
		if ok {
			require.Equal(t, len(want), n)
			taken++
		} else {
			st, err := w[1].recv(world0, buf, 0, i%3, 1)
			if room < len(want) {
				require.ErrorIs(t, err, ErrTruncate)
			} else {
				require.NoError(t, err)
				require.Equal(t, len(want), st.Bytes)
			}
		}
		n = min(room, len(want))
		require.Equal(t, want[:n], buf[:n], "message %d", i)
	}
	require.NoError(t, w[1].Sends.Send(world0, nil, 0, 0))
	drive(t, w[1:], func() bool { return len(sent) > 0 })
	require.NoError(t, <-sent)
	require.Positive(t, taken)
	t.Log(taken, "of", messages, "at once")
}

// TestEagerLimit_IsOfEverySend: a longer message is announced, however it is sent and although a slot has room
// for it.
func TestEagerLimit_IsOfEverySend(t *testing.T) {
	for _, limit := range []int{1, 10, 100} {
		w := worldOf(t, fabrics["sim"](t, 6, 2), Config{EagerLimit: limit})
		connected(t, w)
		p := w[0].peers[1]
		before := p.stats
		ranks(t, w, func(e *Engine) error {
			buf := make([]byte, limit+1)
			if e.Rank() == 1 {
				for range 8 {
					if _, err := e.recv(world0, buf, 0, 1, 1); err != nil {
						return err
					}
				}
				return e.Sends.Send(world0, nil, 0, 1)
			}
			var open []Request
			for i := range 6 { // as a stream, which gathers small ones
				r, err := e.Sends.Isend(world0, buf[:limit+i%2], 1, 1)
				if err != nil {
					return err
				}
				open = append(open, r)
			}
			for _, r := range open {
				if _, err := e.Requests.Wait(r); err != nil {
					return err
				}
			}
			for i := range 2 {
				if err := e.Sends.Send(world0, buf[:limit+i], 1, 1); err != nil {
					return err
				}
			}
			_, err := e.recv(world0, nil, 1, 1, 1)
			return err
		})
		require.Equal(t, uint64(4), p.stats.Eager-before.Eager, "%d", limit)
		require.Equal(t, uint64(4), p.stats.Rendezvous-before.Rendezvous, "%d", limit)
	}
}

// TestAnnouncedAfterAFailure: the queue pair has ended when the announcement of a posted receive is taken.
// The receive fails, and nothing else.
func TestAnnouncedAfterAFailure(t *testing.T) {
	w := worldOf(t, fabrics["sim"](t, 7, 2), Config{EagerLimit: 10})
	connected(t, w)
	in := make([]byte, 100)
	r, err := w[1].Recvs.IrecvVec(world0, halves(in), 0, 1, 1)
	require.NoError(t, err)
	_, err = w[0].Sends.Issend(world0, make([]byte, 100), 1, 1)
	require.NoError(t, err)
	e, p := w[1], w[1].peers[0]
	placed := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.fabrics[0].cq.Poll(e.progress.wcs[:])
		_, _, there, err := p.ch.Next()
		return there && err == nil
	}
	drive(t, w[:1], placed)
	e.mu.Lock()
	p.ch.QP().Abort(transport.ErrPeerLost)
	require.ErrorIs(t, p.ch.QP().PostSend(&transport.SendWR{Op: transport.OpWriteImm}), transport.ErrState)
	e.Recvs.drainLocked(p)
	require.Equal(t, peerFailed, p.state)
	e.mu.Unlock()
	_, err = e.Requests.Wait(r)
	require.ErrorIs(t, err, transport.ErrPeerLost)
}

// TestTakenBackAlways: what asks for a message to be let go is sent as it is, although nothing else of its
// length would be, and although its receiver has no memory to spare.
func TestTakenBackAlways(t *testing.T) {
	w := worldOf(t, fabrics["sim"](t, 8, 2), Config{EagerLimit: 1, MaxUnexpectedBytes: 1})
	connected(t, w)
	require.NoError(t, w[0].Sends.Send(world0, make([]byte, 1), 1, 1))
	require.NoError(t, w[0].Sends.Send(world0, make([]byte, 1), 1, 1))
	drive(t, w, func() bool { return unexpected(w[1]) == 2 })
	require.NoError(t, w[1].Sends.Send(world0, nil, 0, 1)) // which says that memory is short
	drive(t, w, func() bool { return w[0].peers[1].ch.PeerRefusesPayload() })
	ctx, cancel := context.WithCancel(t.Context())
	canceller := w[0].Cancels.NewCanceller(ctx)
	r, err := w[0].Sends.Issend(world0, make([]byte, 100), 1, 1)
	require.NoError(t, err)
	w[0].Cancels.Bind(r, canceller)
	drive(t, w, func() bool { return unexpected(w[1]) == 3 })
	cancel()
	require.Eventually(t, func() bool { return canceller.ended.Load() != nil }, 2*time.Minute, time.Millisecond)
	drive(t, w, func() bool { return w[0].isDone(r) })
	require.Equal(t, 2, unexpected(w[1]))
	require.Equal(t, peerOpen, w[0].peers[1].state)
}

// RecvNext is the fast case of Recv alone.
func (e *Engine) RecvNext(context uint32, buf []byte, src, tag int) (int, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.Recvs.canRecvDirectLocked(src) {
		return 0, false
	}
	return e.Recvs.recvDirectLocked(e.peers[src], envelope{Context: context, Tag: int32(tag)}, buf)
}

// recv is Recv with its status as a result.
func (e *Engine) recv(context uint32, buf []byte, src, tag, elem int) (st Status, err error) {
	err = e.Recvs.Recv(context, buf, src, tag, elem, &st)
	return st, err
}
