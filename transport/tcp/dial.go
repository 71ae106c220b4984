package tcp

import (
	"context"
	"net"

	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
)

// dial connects to a peer and brings the connection to RDMA mode.
func (e *endpoint) dial(ctx context.Context, p *cm.Peer[*qp], peer uint32, addr string) (*qp, error) {
	d := net.Dialer{LocalAddr: e.dev.opts.local(0)}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if handshake.IsCut(err) { // the peer reset it at once
		return nil, cutOff{handshake.Vanished(err)}
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	h := setup.New(&e.local, conn)
	defer h.Until(ctx, provenTimeout)()
	q, err := e.initiate(h, p, peer, addr)
	if q == nil && handshake.IsCut(err) {
		return nil, cutOff{handshake.Vanished(err)}
	}
	return q, handshake.Vanished(err)
}

// cutOff is the error of an attempt whose connection the peer ended before it accepted it. The peer may be
// alive: a rank that evicts a connection cannot always say so in time. If it is dead, the next attempt is
// refused.
type cutOff struct{ error }

func (c cutOff) Unwrap() error        { return c.error }
func (c cutOff) Is(target error) bool { return target == cm.ErrBusy } // so the connection is tried again

// initiate is the initiator's side of the handshake. dialed is the address to which the connection was made,
// "" if the application made it.
func (e *endpoint) initiate(h *setup.Handshake, p *cm.Peer[*qp], peer uint32, dialed string) (*qp, error) {
	if err := h.Introduce(peer, 0); err != nil {
		return nil, err
	}
	p.Callbacks.Lock()
	defer p.Callbacks.Unlock()
	conf, private, err := e.prepare(peer)
	if err != nil {
		h.Reject(handshake.RejectOther, err.Error())
		return nil, err
	}
	mine := e.offer(conf, h)
	if err := h.Request(mine, private); err != nil {
		return nil, err
	}
	// While waiting for the answer, this end may accept the peer's own connection.
	p.Callbacks.Unlock()
	theirs, private, err := h.Answer()
	p.Callbacks.Lock()
	if err != nil {
		return nil, err
	}
	if !e.table.Commit(p) {
		// the peer began another before it accepted ours, and this end has accepted that one
		return nil, cm.ErrCollision
	}
	return e.connected(h, conf, private, true, dialed, mine.Negotiate(theirs))
}
