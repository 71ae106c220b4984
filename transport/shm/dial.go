package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// dial connects to a peer and runs the handshake to its end.
func (e *endpoint) dial(ctx context.Context, p *cm.Peer[*qp], peer uint32, name string) (*qp, error) {
	var d net.Dialer
	made, err := d.DialContext(ctx, network, "@"+name)
	if errors.Is(err, syscall.EAGAIN) {
		return nil, fmt.Errorf("%w: the peer's queue of connections is full", cm.ErrBusy)
	}
	if err != nil {
		return nil, lost(err)
	}
	defer made.Close()
	c := &conn{UnixConn: made.(*net.UnixConn)}
	defer c.within(ctx, provenTimeout)()
	q, err := e.initiate(ctx, c, p, peer, name)
	return q, lost(err)
}

// initiate is the initiator's side of the handshake.
func (e *endpoint) initiate(ctx context.Context, c *conn, p *cm.Peer[*qp], peer uint32, name string) (*qp,
	error) {
	if err := c.identify(); err != nil {
		return nil, err
	}
	who := parties{job: handshake.JobHash(e.id.Job), initiator: e.id.Facing(peer),
		responder: peer,
		nonces:    [2][nonceSize]byte{handshake.NewNonce()}}
	_, err := c.Write(who.appendHello(nil, &e.id.Secret, name))
	var body []byte
	var fds []int
	if err == nil {
		body, fds, err = c.receive(typeAccept, 1)
	}
	if handshake.IsCut(err) {
		// A peer that has not yet answered is too busy at the moment. If it has ended, the next attempt is
		// refused.
		return nil, fmt.Errorf("%w: the peer closed the connection before it answered", cm.ErrBusy)
	}
	if err != nil {
		return nil, c.turnDown(err)
	}
	theirs, private, err := who.takeAccept(body, &e.id.Secret)
	if err != nil {
		closeAll(fds)
		return nil, c.turnDown(err)
	}
	if !e.table.Commit(p) { // the peer's own connection was accepted meanwhile
		closeAll(fds)
		return nil, cm.ErrCollision
	}
	f, err := e.dev.accept(theirs, fds, c.pid)
	if err != nil {
		return nil, c.turnDown(err)
	}
	p.Callbacks.Lock()
	defer p.Callbacks.Unlock()
	mine, err := e.bringIn(ctx, c, &who, f.queues[0].wake)
	if err != nil {
		f.close()
		return nil, err
	}
	return e.connected(c.pid, peer, mine, theirs, f, private), nil
}

// bringIn prepares the initiator's end and sends it to the responder, whose wake address is peer.
func (e *endpoint) bringIn(ctx context.Context, c *conn, who *parties, peer *sys.WakeAddress) (*prepared,
	error) {
	mine, private, err := e.prepare(who.responder)
	if err != nil {
		c.reject(handshake.RejectOther, err.Error())
		return nil, err
	}
	err = c.send(ctx, who.appendOffer(nil, &e.id.Secret, e.dev.offer(mine), private), e.dev.arena.fd)
	if err == nil {
		_, _, err = c.receive(typeReady, 0)
	}
	if err != nil {
		if c.rejected || handshake.IsCut(err) {
			peer = nil // it will not use the block; otherwise it may be about to send Ready
		}
		e.dev.drop(mine, peer)
		return nil, c.turnDown(err)
	}
	return mine, nil
}
