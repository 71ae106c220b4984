package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// What waits to be sent to a peer that has failed is dropped, also if this rank has posted nothing there.
func TestWindows_AnswersToAFailedPeer(t *testing.T) {
	w := world(t, simDevices(1, 2))
	connected(t, w)
	e, p := w[0], peerOf(w[0], 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	p.outbox.waiting = append(p.outbox.waiting, e.Windows.newMessage(channel.Updated))
	p.outbox.results++
	require.Zero(t, p.oneSided)
	e.failures.failPeer(p, transport.ErrPeerLost)
	require.True(t, p.outbox.empty())
	require.Zero(t, p.outbox.results)
}
