package tcp

import (
	"context"
	"fmt"
	"net"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
)

// Transfer transfers the application's own connection to RDMA mode (C2).
func (e *endpoint) Transfer(ctx context.Context, conn net.Conn, ahead []byte, role transport.Role,
	rank uint32) error {
	if conn == nil {
		return fmt.Errorf("%w: no connection to transfer", transport.ErrInvalid)
	}
	defer conn.Close()
	if err := e.transfer(ctx, conn, ahead, role, rank); err != nil {
		return fmt.Errorf("transferring the connection with rank %d: %w", rank, err)
	}
	return nil
}

func (e *endpoint) transfer(ctx context.Context, conn net.Conn, ahead []byte, role transport.Role,
	rank uint32) error {
	if id := &e.local.ID; rank == id.Rank || rank >= id.Size {
		return fmt.Errorf("%w: this is rank %d of %d", transport.ErrInvalid, id.Rank, id.Size)
	}
	ctx, done, err := e.table.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h, err := setup.Adopt(&e.local, conn, ahead, role)
	if err != nil {
		return err
	}
	defer h.Close()
	defer h.Until(ctx, provenTimeout)()
	if role == transport.Initiator {
		err = e.transferAsInitiator(h, rank)
	} else {
		err = e.transferAsResponder(h, rank)
	}
	switch {
	case err == nil:
		return nil
	case e.table.Context().Err() != nil:
		return transport.ErrDeviceGone
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("at %v: %w", h.RemoteAddr(), handshake.Vanished(err))
}

func (e *endpoint) transferAsInitiator(h *setup.Handshake, rank uint32) error {
	peer, ok := e.table.Dial(rank)
	if !ok {
		return cm.ErrCollision
	}
	q, err := e.initiate(h, peer, rank, "")
	e.table.Dialed(peer, q)
	return err
}

func (e *endpoint) transferAsResponder(h *setup.Handshake, rank uint32) error {
	theirs, private, err := h.Prove(func(initiator uint32, lane uint16) bool {
		return initiator == rank && lane == 0
	}, func() {})
	if err != nil {
		h.RejectGarbage(err)
		return err
	}
	return e.accept(h, theirs, private)
}
