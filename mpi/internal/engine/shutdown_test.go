package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

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
