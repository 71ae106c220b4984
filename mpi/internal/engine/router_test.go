package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Test_RouterHandsOverByKindAndOwner: a protocol that the engine does not know gets what it registered for, and
// nothing else; a kind of nobody is a violation, a completion of nobody is not.
func Test_RouterHandsOverByKindAndOwner(t *testing.T) {
	var r router
	p := &peer{state: peerOpen}
	f := &fabric{byQP: map[transport.QPN]*peer{7: p}}
	const kind, owner = channel.Kind(200), 0x99
	var got []string
	r.onMessage(kind, func(q *peer, body []byte) error {
		require.Same(t, p, q)
		got = append(got, string(body))
		return nil
	})
	r.onCompletion(owner, func(q *peer, wc *transport.WC) {
		require.Same(t, p, q)
		got = append(got, "completion")
	})
	require.NoError(t, r.message(p, kind, []byte("message")))
	require.ErrorIs(t, r.message(p, kind+1, nil), transport.ErrProtocol)
	r.completion(f, &transport.WC{QP: 7, Op: transport.OpWrite, ID: owner<<56 | 1})
	r.completion(f, &transport.WC{QP: 7, Op: transport.OpWrite, ID: 1})
	r.completion(f, &transport.WC{QP: 8, Op: transport.OpWrite, ID: owner << 56})
	require.Equal(t, []string{"message", "completion"}, got)
	require.Panics(t, func() { r.onMessage(kind, nil) })
	require.Panics(t, func() { r.onCompletion(owner, nil) })
}
