package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// TestRefusedPayloadIsSent: a peer that goes on to send payload after it has read that there is no memory for
// it is given up, and what it has sent stays within bounds.
func TestRefusedPayloadIsSent(t *testing.T) {
	for name, devices := range fabrics {
		t.Run(name, func(t *testing.T) {
			const limit = 100_000
			w := worldOf(t, devices(t, 1, 2), Config{MaxUnexpectedBytes: limit})
			connected(t, w)
			payload := make([]byte, 500)
			p, victim := w[0].peers[1], w[1].peers[0]
			for range 10_000 {
				w[0].mu.Lock()
				if p.state == peerOpen {
					// whatever the peer wants
					_, err := eager.TrySend(p.ch, envelope{Context: world0, Tag: 1}, payload, 0)
					require.NoError(t, err)
				}
				w[0].mu.Unlock()
				for _, e := range w {
					e.mu.Lock()
					e.progress.poll()
					e.mu.Unlock()
				}
				if victim.state == peerFailed {
					break
				}
			}
			require.Equal(t, peerFailed, victim.state)
			require.ErrorIs(t, victim.cause, transport.ErrProtocol)
			require.ErrorContains(t, victim.cause, "no memory")
			st := w[1].Stats()
			require.Positive(t, st.Holds)
			require.Less(t, st.Kept, limit+200_000, "the limit, and what a ring takes")
		})
	}
}

// TestUnexpectedMessagesHaveALimit: envelopes take memory, too. The peer that sends more than its share of
// them is given up, by an error that names the limit; others are not.
func TestUnexpectedMessagesHaveALimit(t *testing.T) {
	for name, devices := range fabrics {
		t.Run(name, func(t *testing.T) {
			const limit = 300
			w := worldOf(t, devices(t, 1, 3), Config{MaxUnexpectedCount: limit})
			ranks(t, w, func(e *Engine) error {
				switch e.Rank() {
				case 0:
					for i := range 10 * limit {
						var err error
						if i%2 == 0 {
							_, err = e.Sends.Isend(world0, nil, 1, 1)
						} else {
							_, err = e.Sends.Issend(world0, nil, 1, 1)
						}
						if err != nil {
							return err
						}
					}
					return nil
				case 2:
					for range limit / 10 {
						if err := e.Sends.Send(world0, nil, 1, 2); err != nil {
							return err
						}
					}
					return e.Sends.Send(world0, nil, 1, 3)
				}
				_, err := e.recv(world0, nil, 0, 9, 1)
				require.ErrorIs(t, err, ErrLimit)
				require.ErrorContains(t, err, "WEFT_UNEXPECTED_COUNT")
				_, err = e.recv(world0, nil, 2, 3, 1)
				return err
			})
			require.LessOrEqual(t, unexpected(w[1]), limit+limit/10)
			require.Equal(t, peerOpen, w[1].peers[2].state)
		})
	}
}

// TestPeerKnowsRefusal: only messages that were sent after the peer had read of it count.
func TestPeerKnowsRefusal(t *testing.T) {
	w := world(t, simDevices(1, 2))
	connected(t, w)
	a, b := w[0].peers[1].ch, w[1].peers[0].ch
	both := func() {
		for _, e := range w {
			for _, f := range e.fabrics {
				f.cq.Poll(e.progress.wcs[:])
			}
		}
	}
	next := func(c *channel.Channel) {
		t.Helper()
		require.Eventually(t, func() bool {
			both()
			_, _, ok, err := c.Next()
			require.NoError(t, err)
			return ok
		}, 2*time.Minute, time.Microsecond)
	}
	send := func(c *channel.Channel) {
		t.Helper()
		sent, err := eager.TrySend(c, envelope{}, []byte{1}, 0)
		require.NoError(t, err)
		require.True(t, sent)
	}
	b.RefusePayload(true)
	send(a) // it has not heard of that
	next(b)
	require.False(t, b.PeerKnowsRefusal())
	b.Release()
	send(b)
	next(a)
	a.Release()
	require.True(t, a.PeerRefusesPayload())
	send(a)
	next(b)
	require.True(t, b.PeerKnowsRefusal())
	b.RefusePayload(false)
	require.False(t, b.PeerKnowsRefusal())
}
