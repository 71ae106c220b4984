package engine

import (
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/transport"
)

// The first message to a peer goes without a connection where many ranks share a host, if it is short: most
// programs whose ranks all contact each other do so once, and a connection takes five times as long
// (docs/internals/adr/0112).

// sendUnconnectedLocked sends a message to a peer that has no connection, and completes its request; false if
// it needs one. A connection that either end has begun must not overtake the message.
func (s *Sends) sendUnconnectedLocked(p *peer, r *request) bool {
	s.e.mu.assertHeld()
	if p.ch != nil || p.unconnected.sent > 0 || r.view != nil || r.sync || len(r.vec) != 1 ||
		eager.EnvelopeLen+len(r.vec[0]) > transport.MaxUnconnected || s.e.stopped != nil ||
		s.e.failures.noted.Load() || s.unforced != nil || s.e.connections.channelConfig.Threshold > 0 {
		return false
	}
	m := &r.msg
	var body [transport.MaxUnconnected]byte
	if !s.e.connections.sendUnconnected(p, eager.Append(body[:0], m.Envelope, r.vec[0])) {
		return false
	}
	p.unconnected.sent++
	p.stats.eager(m.Total())
	s.e.recorder.Note(recorder.Sent, m.Context, p.rank, int(m.Tag), m.Total())
	s.e.hook.sent(m.Envelope, p.rank, m.Total())
	s.e.Requests.complete(r, nil)
	s.e.connections.askLaterLocked()
	return true
}

func (d *connections) sendUnconnected(p *peer, message []byte) bool {
	for _, f := range d.e.fabrics {
		if u, ok := f.listener.(transport.UnconnectedSender); ok &&
			u.SendUnconnected(transport.PeerAt(uint32(p.rank), d.e.number), message) {
			if d.unconnected++; f.maxPolled > 0 && d.unconnected > f.maxPolled {
				d.e.waiting.manyPeers.Store(true) // as with so many connections
			}
			return true
		}
	}
	return false
}

var _ transport.UnconnectedReceiver = (*acceptor)(nil)

// Unconnected takes a message of a peer without a connection.
func (a *acceptor) Unconnected(peer uint32, message []byte) {
	e, err := a.hub.Endpoint(transport.PortOf(peer))
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peerLocked(int(transport.RankOf(peer)))
	if e.stopped != nil || p.state == peerFailed || p.state == peerClosed {
		return
	}
	p.unconnected.received++
	if err := e.Recvs.onEagerMessage(p, message); err != nil {
		e.failures.failPeer(p, err)
	}
	e.hub.queues.wake() // a sleeper may wait for it
}
